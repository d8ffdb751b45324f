"""The stock `llava_vid` and `llava_onevision` wrappers read the chosen frames.

The `llava` package cannot be installed here, so a process of its own gets a stand-in for it: a model that keeps what
it is given, and just enough around it for the real wrappers to run. What is tested is the way of the frames and of
the frame times through the real wrappers and the real seam, nothing of LLaVA itself.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

STAND_IN = {
    "llava/__init__.py": "",
    "llava/constants.py": "\n".join(
        f"{name} = {value!r}"
        for name, value in {
            "DEFAULT_IM_END_TOKEN": "<e>",
            "DEFAULT_IM_START_TOKEN": "<s>",
            "DEFAULT_IMAGE_TOKEN": "<image>",
            "IMAGE_TOKEN_INDEX": -200,
            "IGNORE_INDEX": -100,
        }.items()
    ),
    "llava/conversation.py": """
import copy, enum
class SeparatorStyle(enum.Enum):
    ONE = 1
    TWO = 2
class Conversation:
    roles, sep, sep2, sep_style = ("user", "assistant"), "#", "#", SeparatorStyle.ONE
    def __init__(self): self.messages = []
    def copy(self): return copy.deepcopy(self)
    def append_message(self, role, text): self.messages.append([role, text])
    def get_prompt(self): return "#".join(text for _, text in self.messages if text)
conv_templates = {"qwen_1_5": Conversation(), "vicuna_v1": Conversation()}
""",
    "llava/mm_utils.py": """
import torch
class KeywordsStoppingCriteria:
    def __init__(self, *arguments): pass
def get_model_name_from_path(path): return "llava_qwen"
def process_images(*arguments): raise NotImplementedError
def tokenizer_image_token(prompt, tokenizer, index, return_tensors=None):
    tokenizer.prompts.append(prompt)
    return torch.tensor([1, index, 2])
""",
    "llava/model/__init__.py": "",
    "llava/model/language_model/__init__.py": "",
    "llava/model/language_model/llava_llama.py": """
from transformers import PretrainedConfig
class LlavaConfig(PretrainedConfig):
    model_type = "llava_llama"
""",
    "llava/model/language_model/llava_qwen.py": """
from transformers import PretrainedConfig
class LlavaQwenConfig(PretrainedConfig):
    model_type = "llava_qwen"
""",
    "llava/model/builder.py": """
import types, torch
class Tokenizer:
    pad_token_id, eos_token_id, name_or_path, padding_side, prompts = 0, 3, "qwen", "right", []
    def encode(self, text, add_special_tokens=False): return list(text.encode())
    def batch_decode(self, ids, skip_special_tokens=True): return ["B" for _ in ids]
class Processor:
    def preprocess(self, video, return_tensors=None): return {"pixel_values": torch.from_numpy(video)}
class Model(torch.nn.Module):
    config = types.SimpleNamespace(mm_use_im_start_end=False)
    given = []
    def tie_weights(self): pass
    def generate(self, *ids, images=None, **rest):
        self.given.append(images[0].float().numpy())
        return torch.tensor([[5]])
def load_pretrained_model(*arguments, **options): return Tokenizer(), Model(), Processor(), 2048
""",
}
RUN = """
import json, sys
import numpy as np
from lmms_eval.api.instance import Instance
from focus_eval.lmms.models import llava_original
name, clip, record, weights = sys.argv[1:]
options = {"add_time_instruction": True} if name == "FocusLlavaVid" else {}
model = getattr(llava_original, name)(
    pretrained=weights, device="cpu", device_map="auto", sampler="random", frames=5, record=record, **options
)
row = {"id": "q", "video_path": "c.mp4", "question": "?", "option0": "a", "option1": "b", "option2": "N/A",
       "duration": 9.0, "correct_choice": 1}
model.task_dict = {"longvideobench_val_v": {"validation": [row]}}
request = Instance(
    request_type="generate_until", idx=0, metadata={"task": "longvideobench_val_v", "doc_id": 0, "repeats": 1},
    arguments=("What?", {"max_new_tokens": 2, "until": ["x"]}, lambda document: [clip], 0, "longvideobench_val_v",
               "validation"),
)
print("answer", model.generate_until([request]))
model.clean()
np.save(record + "/given.npy", model._model.given[0])
print("prompts " + json.dumps(model.tokenizer.prompts))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FocusLlavaVid", "FocusLlavaOnevisionOriginal"])
def test_the_real_wrapper_hands_the_chosen_frames_and_their_times_to_its_model(name, home, tools, tmp_path):
    for file, text in STAND_IN.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text('{"model_type": "qwen2"}')
    record = tmp_path / "record"
    record.mkdir()
    clip = home.videos["mlvu"] / "landscape.mp4"
    found = subprocess.run(
        [sys.executable, "-c", RUN, name, str(clip), str(record), str(tmp_path / "weights")],
        capture_output=True, text=True, env={**home.environment(), "PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    (row,) = tools.read_record(record, "selections")
    (answer,) = tools.read_record(record, "answers")
    assert (answer["answer"], answer["error"]) == ("B", None)
    expected = tools.decode_all(clip)[row["keyframes"]]
    assert np.array_equal(np.load(record / "given.npy"), expected.astype(np.float32))
    if name == "FocusLlavaVid":
        (line,) = [line for line in found.stdout.splitlines() if line.startswith("prompts ")]
        (prompt,) = json.loads(line.removeprefix("prompts "))
        times = ",".join(f"{frame / 10:.2f}s" for frame in row["keyframes"])
        assert "The video lasts for 9.00 seconds, and 5 frames are uniformly sampled from it." in prompt
        assert f"These frames are located at {times}." in prompt
