"""Bad input: one sentence, and the episode goes on as if nothing had been said."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from world_model.controls import StructuredCaption
from wp2env.starts import StartBank
from wp2env.tasks import Exploration

pytestmark = pytest.mark.filterwarnings("error")


HALL = {"scene": "a hall"}


def options(**values):
    return lambda env: env.reset(options=values)


BAD_CALLS = {
    "unknown option": (options(level=3), "reset has no option 'level'; it knows caption, init_frames"),
    "unknown caption field": (options(caption={"mood": "x"}), "a caption has no field 'mood'; it has scene"),
    "empty caption": (options(caption={"scene": " "}), "the caption's scene is ' '; give a text, 'None' for nothing"),
    "caption that is no dict": (options(caption="a hall"), "the caption is 'a hall'; give a dict with scene"),
    "caption object of nonsense": (options(caption=StructuredCaption(5)), "the caption's scene is 5; give a text"),
    "float picture": (options(init_frames=np.zeros((32, 32, 3)), caption=HALL), "init_frames are float64 .* uint8"),
    "grey picture": (options(init_frames=np.zeros((32, 32), np.uint8), caption=HALL), r"uint8 \[32, 32\]; give an RGB"),
    "RGBA picture": (options(init_frames=np.zeros((8, 8, 4), np.uint8), caption=HALL), r"uint8 \[8, 8, 4\]"),
    "no frames": (options(init_frames=np.zeros((0, 8, 8, 3), np.uint8), caption=HALL), r"uint8 \[0, 8, 8, 3\]"),
    "picture without a scene": (options(init_frames=np.zeros((8, 8, 3), np.uint8)), "has no caption yet; add"),
    "text alone without a text": (options(text_only=True), "has no caption yet; add"),
    "text_only of nonsense": (options(text_only="yes", caption=HALL), "text_only is 'yes'; give True or False"),
    "two starts at once": (options(text_only=True, start_index=0, caption=HALL), "exclude each other; give one"),
    "start beyond the bank": (options(start_index=3), "start_index is 3; the bank holds 3 starts, numbered from 0"),
    "start of nonsense": (options(start_index="first"), "start_index is 'first'; give a whole number"),
    "perspective 2": (options(perspective=2), r"perspective is 2; give 0 \(third person\) or 1 \(first\)"),
    "perspective array": (options(perspective=np.array([0, 1])), r"perspective is array\(\[0, 1\]\); give 0"),
    "negative seed": (lambda env: env.reset(seed=-1), "a seed is -1; give whole numbers from 0 up"),
    "float seed": (lambda env: env.reset(seed=1.5), "a seed is 1.5; give whole numbers from 0 up"),
    "action of another mode": (lambda env: env.step(np.zeros(6)), "the action is a ndarray; give a dict of camera"),
    "action outside": (lambda env: env.step({**env.idle_action(), "jump": 2}), "jump is 2 in slot 0; give 0 to 1"),
    "empty event": (lambda env: env.set_event(""), "the caption's event is ''; give a text, 'None' for nothing"),
    "scene of nonsense": (lambda env: env.set_caption(scene=5), "the caption's scene is 5; give a text"),
    "no state": (lambda env: env.set_state({}), "the state is a dict; give what get_state returned"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_one_sentence_and_the_episode_goes_on(make, actions, play, same, name):
    call, message = BAD_CALLS[name]
    env, undisturbed = make(), make()
    env.reset(seed=0), undisturbed.reset(seed=0)
    moves = actions(env.action_space, 4)
    play(env, moves[:2]), play(undisturbed, moves[:2])
    with pytest.raises(ValueError, match=message) as raised:
        call(env)
    assert "\n" not in str(raised.value)
    assert same((play(env, moves[2:]), env.reset()), (play(undisturbed, moves[2:]), undisturbed.reset()))


def test_a_state_of_another_kind_of_environment_changes_nothing(make, chunked_folder, actions, play, same):
    env, undisturbed = make(), make()
    env.reset(seed=0), undisturbed.reset(seed=0)
    other_task, other_world = make(task="constant"), make(world=str(chunked_folder))
    other_task.reset(seed=0), other_world.reset(seed=0)
    with pytest.raises(ValueError, match="the task 'constant 0', the environment has 'tiny' and 'exploration'"):
        env.set_state(other_task.get_state())
    with pytest.raises(ValueError, match=r"the state is of \[1, 16, 32, 32, 3\]"):
        env.set_state(other_world.get_state())
    moves = actions(env.action_space, 2)
    assert same(play(env, moves), play(undisturbed, moves))


@pytest.mark.parametrize("call", ["step", "render", "set_event", "idle_action"])
def test_nothing_happens_before_the_first_reset(make, call):
    env = make(render_mode="rgb_array")
    calls = {
        "step": lambda: env.step(env.action_space.sample()),
        "render": env.render,
        "set_event": lambda: env.set_event("it rains"),
        "idle_action": lambda: env.caption,
    }
    with pytest.raises(ResetNeeded, match="the episode has not begun; call reset first"):
        calls[call]()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"world": "nowhere"}, FileNotFoundError, "there is no world 'nowhere': .* the bundled worlds are"),
        ({"world": 5}, ValueError, "the world is 5; name a bundled one, give a folder, or a world object"),
        ({"device": "cuda:99"}, ValueError, "the device 'cuda:99' is not available here; choose one of cpu"),
        ({"device": "abacus"}, ValueError, "the device 'abacus' is not available here"),
        ({"task": "win"}, ValueError, "the task 'win' is not known; name one of explore, constant"),
        ({"task": Exploration}, ValueError, "the task .*Exploration.* is not known"),
        ({"action_mode": "joystick"}, ValueError, "action_mode is 'joystick'; choose one of dict"),
        ({"obs_mode": "latent"}, ValueError, "obs_mode is 'latent'; choose one of frame, clip"),
        ({"render_mode": "ansi"}, ValueError, "render_mode is 'ansi'; choose one of human, rgb_array"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps is 0; give at least 1, or -1 for no limit"),
        ({"sampling_steps": 0}, ValueError, "sampling_steps is 0; give a whole number"),
        ({"dtype": "float8"}, ValueError, "dtype is 'float8'; choose one of float32, bfloat16"),
        ({"temperature": -1}, ValueError, "temperature is -1; it scales noise and must be 0 or more"),
        ({"starts": "nowhere.safetensors"}, FileNotFoundError, "there is no file 'nowhere.safetensors'"),
        ({"yaw_bins": 2}, ValueError, "yaw_bins is 2; give an odd number"),
    ],
)
def test_a_bad_argument_is_refused_in_one_sentence(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


def test_a_world_without_weights_says_so(make, tmp_path, folder):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match="has no world.safetensors; copy the weights there"):
        make(world=str(tmp_path))


def test_a_bank_of_another_size_is_refused(make, tmp_path, folder):
    bank = StartBank(np.zeros((1, 1, 16, 16, 3), np.uint8), (StructuredCaption("x"),), np.ones(1, np.uint8))
    with pytest.raises(ValueError, match=r"the bank of starts holds pictures \[16, 16, 3\] and this world draws"):
        make(starts=bank)
