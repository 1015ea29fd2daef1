#!/usr/bin/env python3
"""CTranslate2's cases: a small language model with random weights. The GPU's logits and texts are
those of CTranslate2 on the CPU."""
import atexit
import os
import shutil
import sys
import tempfile

import ctranslate2
import numpy
from ctranslate2.specs import model_spec, transformer_spec

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

WIDTH, HIDDEN, WORDS, LAYERS, HEADS = 64, 256, 100, 2, 4
RANDOM = numpy.random.default_rng(5)
VOCABULARY = ["<unk>", "<s>", "</s>"] + [f"w{number}" for number in range(WORDS - 3)]
PROMPT = [["<s>", "w3", "w14", "w15"], ["<s>", "w9", "w26", "w5"]]


def weights(*shape):
    return (RANDOM.standard_normal(shape) * 0.1).astype(numpy.float32)


def fill_norm(norm):
    norm.gamma, norm.beta = 1 + weights(WIDTH), weights(WIDTH)


def fill_linear(linear, rows, columns):
    linear.weight, linear.bias = weights(rows, columns), weights(rows)


def model():
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(LAYERS, HEADS, pre_norm=True)
    decoder = spec.decoder
    decoder.embeddings.weight = weights(WORDS, WIDTH)
    fill_norm(decoder.layer_norm)
    fill_linear(decoder.projection, WORDS, WIDTH)
    decoder.position_encodings.encodings = weights(64, WIDTH)
    for layer in decoder.layer:
        fill_norm(layer.self_attention.layer_norm)
        fill_linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        fill_linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        fill_norm(layer.ffn.layer_norm)
        fill_linear(layer.ffn.linear_0, HIDDEN, WIDTH)
        fill_linear(layer.ffn.linear_1, WIDTH, HIDDEN)
    assert isinstance(spec, model_spec.ModelSpec)
    spec.register_vocabulary(VOCABULARY)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = VOCABULARY[:3]
    spec.validate()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spec.save(folder)
    return folder


FOLDER = model()


def generators(kind="float32"):
    return [ctranslate2.Generator(FOLDER, device=device, compute_type=kind if device == "cuda" else "float32")
            for device in ("cuda", "cpu")]


def logits(generator):
    return numpy.asarray(generator.forward_batch(PROMPT).to_device(ctranslate2.Device.cpu))


@case
def memory_there_and_back():
    values = RANDOM.random((64, 128), dtype=numpy.float32)
    there = ctranslate2.StorageView.from_array(values).to_device(ctranslate2.Device.cuda)
    equal(numpy.asarray(there.to_device(ctranslate2.Device.cpu)), values)


@case
def logits_of_a_prompt():
    gpu, cpu = (logits(generator) for generator in generators())
    close(gpu, cpu, 1e-4)


@case
def greedy_text():
    gpu, cpu = (generator.generate_batch(PROMPT, max_length=16, sampling_topk=1) for generator in generators())
    assert [each.sequences for each in gpu] == [each.sequences for each in cpu], (gpu, cpu)


@case
def beams():
    gpu, cpu = (generator.generate_batch(PROMPT, max_length=12, beam_size=3, num_hypotheses=2, return_scores=True)
                for generator in generators())
    assert [each.sequences for each in gpu] == [each.sequences for each in cpu], (gpu, cpu)
    close([each.scores for each in gpu], [each.scores for each in cpu], 1e-4)


@case
def half_precision():
    gpu, cpu = (generator.forward_batch(PROMPT) for generator in generators("float16"))
    half = gpu.to_device(ctranslate2.Device.cpu).to(ctranslate2.DataType.float32)
    close(numpy.asarray(half)[..., :WORDS], numpy.asarray(cpu), 2e-2)  # Words are padded to a multiple of 8.


@case
def sampling():
    generator = generators()[0]
    said = generator.generate_batch(PROMPT, max_length=10, min_length=10, sampling_topk=5)
    assert all(len(each.sequences[0]) >= 10 for each in said), said


if __name__ == "__main__":
    main()
