"""Threads that prepare questions at once have processors of their own; a model without any loads none."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import CLIPImageProcessor, PreTrainedTokenizerFast

from focus_eval.bench.answering.ahead import AnswerQueue, Place, QuestionBatch
from focus_eval.bench.answering.processors import NearbyInputs, OwnProcessors


def test_each_thread_has_copies_of_tokenizer_and_processor_and_nothing_else():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    model = SimpleNamespace(tokenizer=tokenizer, _image_processor=CLIPImageProcessor(), frames=8, name="tiny")
    processors, place = OwnProcessors(), Place(AnswerQueue(max_bytes=1), QuestionBatch(cell=None, questions=[]))
    with processors.of(model, place) as first, processors.of(model, place) as second:
        assert first.keys() == second.keys() == {"tokenizer", "_image_processor"}
        assert isinstance(first["tokenizer"], PreTrainedTokenizerFast)
        assert len({id(item["tokenizer"]) for item in (first, second, vars(model))}) == 3
        assert isinstance(first["_image_processor"], NearbyInputs)
        assert first["_image_processor"].size == model._image_processor.size
    with processors.of(model, place) as again:
        assert again["tokenizer"] in (first["tokenizer"], second["tokenizer"])


def test_a_model_without_processors_loads_no_transformers():
    code = """
import sys
from focus_eval.bench.answering.ahead import AnswerQueue, QuestionBatch, Place
from focus_eval.bench.answering.processors import OwnProcessors
with OwnProcessors().of(object, Place(AnswerQueue(max_bytes=1), QuestionBatch(cell=None, questions=[]))) as processors:
    print(processors, "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{} False\n"
