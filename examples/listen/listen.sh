#!/bin/sh
# make listen: runs the program, or prints how to get a model.
if [ -z "$MODEL" ]; then
    echo 'Whisper tiny.en, 78 MB, MIT licence: curl -LO https://huggingface.co/ggerganov/whisper.cpp/resolve/main/ggml-tiny.en.bin'
    echo 'then: make listen MODEL=ggml-tiny.en.bin WAV=talk.wav'
    exit 0
fi
if [ -z "$WAV" ]; then
    echo 'listen: WAV is missing: make listen MODEL=ggml-tiny.en.bin WAV=talk.wav' >&2
    exit 2
fi
exec $RUN build/listen "$@" "$MODEL" "$WAV"
