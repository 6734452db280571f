"""Twenty kinds of events in three categories, made with console commands of the unmodified engine.

An event's caption is in force for ``frames`` frames from the first command on; then `settle` writes what lasts
(a new sky, a fallen creature, another body) into the scene and character captions. Whether an event can be
seen is not decided here: the recorder compares it with a twin that plays the same actions without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from world_model.controls import THIRD_PERSON
from world_model.data.doom import art
from world_model.data.doom.actors import BODY_RADIUS, CHARACTERS, OBJECTS, OWN_SHAPES, ObjectKind, appear, figure_actor
from world_model.data.doom.levels import Placed
from world_model.data.doom.motion import HEADING, X, Y, degrees_between
from world_model.data.doom.navigation import fits, sees
from world_model.data.doom.scene import listing

if TYPE_CHECKING:
    from world_model.data.doom.game import DoomGame

CATEGORIES = ("environmental transition", "object addition or removal", "complex interaction")
TRANSITION, OBJECTS_CHANGE, INTERACTION = CATEGORIES
EVENT_THING = 7000  # thing ids of what events bring in
NEAR, FAR = 100.0, 190.0  # map units in front of the player where something may appear
DARK, FOGGY, DIM_OUTSIDE, BRIGHT = 136, 144, 150, 255  # light levels; in full light the engine shows no fog


def _nothing_lasts(game: DoomGame) -> None:
    """The settling of an event that leaves no trace."""


@dataclass(frozen=True)
class Event:
    """Something that happens: ``commands[k]`` are sent with the event's frame ``k``."""

    kind: str
    category: str
    caption: str
    frames: int
    commands: dict[int, tuple[str, ...]]
    settle: Callable[[DoomGame], None] = _nothing_lasts
    takes_away: tuple[int, ...] = ()  # thing ids that are gone at once, though the scene caption tells them until then


Builder = Callable[["DoomGame", np.random.Generator], "Event | None"]
BUILDERS: dict[str, Builder] = {}  # by kind
KINDS: dict[str, list[str]] = {category: [] for category in CATEGORIES}  # by category


def event_kind(category: str) -> Callable[[Builder], Builder]:
    """Register a builder under its function name; it returns None where the event cannot happen."""

    def register(builder: Builder) -> Builder:
        BUILDERS[builder.__name__] = builder
        KINDS[category].append(builder.__name__)
        return builder

    return register


def _choose(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


def _outdoors(game: DoomGame) -> bool:
    index = game.level.area_index(game.pose[X], game.pose[Y])
    return index >= 0 and game.level.areas[index].kind == "courtyard"


def _spot_ahead(game: DoomGame, rng: np.random.Generator, radius: float = 20) -> tuple[float, float] | None:
    """A free place in view and in the same area; beside the body, not behind it, in third person."""
    x, y, heading = (float(game.pose[column]) for column in (X, Y, HEADING))
    here = game.level.area_index(x, y)
    aside = 12.0 if game.engine.perspective == THIRD_PERSON else 0.0
    for _ in range(24):
        distance, offset = rng.uniform(NEAR, FAR), _choose(rng, (-1, 1)) * rng.uniform(aside, 24)
        direction = np.radians(heading + offset)
        spot = float(x + distance * np.cos(direction)), float(y + distance * np.sin(direction))
        if (
            game.level.area_index(*spot) == here
            and sees(game.level, x, y, heading + offset, distance)
            and fits(game.level, *spot, margin=radius - BODY_RADIUS + 4)
        ):
            return spot
    return None


def _arrives(kind: ObjectKind, spot: tuple[float, float], tid: int) -> Callable[[DoomGame], None]:
    """The settling that adds an object to the scene."""

    def settle(game: DoomGame) -> None:
        game.scene.add(Placed(kind, *spot, tid, game.level.area_index(*spot)))

    return settle


def _change_scene(**changes: str) -> Callable[[DoomGame], None]:
    """The settling that changes what the scene caption says (see `Scene.change`)."""

    def settle(game: DoomGame) -> None:
        game.scene.change(**changes)

    return settle


# ---- environmental transitions


@event_kind(TRANSITION)
def lights_out(game: DoomGame, rng: np.random.Generator) -> Event | None:
    commands = {0: (f"special Light_Fade 0 {DARK} 30",)}
    return Event("lights_out", TRANSITION, "the lights go out", 12, commands, _change_scene(light="dark"))


@event_kind(TRANSITION)
def lights_up(game: DoomGame, rng: np.random.Generator) -> Event | None:
    commands = {0: (f"special Light_Fade 0 {BRIGHT} 30",)}
    return Event("lights_up", TRANSITION, "the lights become bright", 12, commands, _change_scene(light="bright"))


@event_kind(TRANSITION)
def fog(game: DoomGame, rng: np.random.Generator) -> Event | None:
    commands = {k: (f"special Sector_SetFade 0 {v} {v} {v}",) for k, v in enumerate(range(20, 160, 14))}
    commands[0] += (f"special Light_Fade 0 {FOGGY} 40",)
    return Event("fog", TRANSITION, "grey fog rolls in", 14, commands, _change_scene(remark="in grey fog"))


@event_kind(TRANSITION)
def red_alarm(game: DoomGame, rng: np.random.Generator) -> Event | None:
    red, white = "special Sector_SetColor 0 255 40 40", "special Sector_SetColor 0 255 255 255"
    commands = {k: (white if k % 4 else red,) for k in range(0, 16, 2)}
    return Event("red_alarm", TRANSITION, "a red alarm light flashes", 16, commands)


@event_kind(TRANSITION)
def night_falls(game: DoomGame, rng: np.random.Generator) -> Event | None:
    if game.scene.sky == "night" or not _outdoors(game):
        return None
    commands = {0: (f"changesky {art.SKIES['night']}", f"special Light_Fade 0 {DIM_OUTSIDE} 40")}
    return Event("night_falls", TRANSITION, "night falls", 14, commands, _change_scene(sky="night", light="dim"))


@event_kind(TRANSITION)
def sun_sets(game: DoomGame, rng: np.random.Generator) -> Event | None:
    if game.scene.sky != "day" or not _outdoors(game):
        return None
    tints = {k: (f"special Sector_SetColor 0 255 {255 - 8 * k} {255 - 14 * k}",) for k in range(1, 9)}
    commands = {0: (f"changesky {art.SKIES['dusk']}",), **tints}
    settle = _change_scene(sky="dusk", remark="in warm light")
    return Event("sun_sets", TRANSITION, "the sun sets", 12, commands, settle)


def _weather(game: DoomGame, kind: str, source: str, caption: str, tint: str) -> Event | None:
    if not _outdoors(game):
        return None

    def clears(game: DoomGame) -> None:
        game.engine.command(f"remove {source}", "special Sector_SetColor 0 255 255 255")
        game.scene.change(sky="overcast")

    commands = {0: (f"changesky {art.SKIES['overcast']}", f"summon {source}", f"special Sector_SetColor 0 {tint}")}
    return Event(kind, TRANSITION, caption, 16, commands, clears)


@event_kind(TRANSITION)
def rain(game: DoomGame, rng: np.random.Generator) -> Event | None:
    return _weather(game, "rain", "RainSource", "it rains from a grey sky", "150 160 220")


@event_kind(TRANSITION)
def snow(game: DoomGame, rng: np.random.Generator) -> Event | None:
    return _weather(game, "snow", "SnowSource", "it snows from a grey sky", "215 215 255")


# ---- objects come and go


@event_kind(OBJECTS_CHANGE)
def object_appears(game: DoomGame, rng: np.random.Generator) -> Event | None:
    kind, spot = _choose(rng, OWN_SHAPES), _spot_ahead(game, rng)
    if spot is None:
        return None
    commands = {0: (appear(kind.actor, *spot, tid=EVENT_THING),)}
    settle = _arrives(kind, spot, EVENT_THING)
    return Event("object_appears", OBJECTS_CHANGE, f"{listing([kind.name])} appears", 10, commands, settle)


@event_kind(OBJECTS_CHANGE)
def object_materialises(game: DoomGame, rng: np.random.Generator) -> Event | None:
    kind, spot = _choose(rng, OWN_SHAPES), _spot_ahead(game, rng)
    if spot is None:
        return None
    commands = {0: (appear("TeleportFog", *spot),), 2: (appear(kind.actor, *spot, tid=EVENT_THING),)}
    caption = f"{listing([kind.name])} materialises in a green flash"
    settle = _arrives(kind, spot, EVENT_THING)
    return Event("object_materialises", OBJECTS_CHANGE, caption, 12, commands, settle)


@event_kind(OBJECTS_CHANGE)
def creature_appears(game: DoomGame, rng: np.random.Generator) -> Event | None:
    character, spot = _choose(rng, CHARACTERS), _spot_ahead(game, rng)
    if spot is None:
        return None
    name = character.words.removeprefix("a ")
    facing = game.pose[HEADING] + 180
    commands = {0: (appear(figure_actor(character), *spot, angle=facing, tid=EVENT_THING),)}
    settle = _arrives(ObjectKind(name, figure_actor(character), 20), spot, EVENT_THING)
    return Event("creature_appears", OBJECTS_CHANGE, f"a {name} appears", 10, commands, settle)


@event_kind(OBJECTS_CHANGE)
def row_appears(game: DoomGame, rng: np.random.Generator) -> Event | None:
    kind, middle = _choose(rng, OWN_SHAPES), _spot_ahead(game, rng)
    if middle is None:
        return None
    across = np.radians(game.pose[HEADING] + 90)
    spots = [(middle[0] + k * 60 * np.cos(across), middle[1] + k * 60 * np.sin(across)) for k in (-1, 0, 1)]
    here = game.level.area_index(*middle)
    if any(game.level.area_index(*spot) != here or not fits(game.level, *spot, margin=8) for spot in spots):
        return None
    commands = {k: (appear(kind.actor, *spot, tid=EVENT_THING + k),) for k, spot in enumerate(spots)}

    def settle(game: DoomGame) -> None:
        for k, spot in enumerate(spots):
            _arrives(kind, spot, EVENT_THING + k)(game)

    caption = f"a row of {listing([kind.name] * 3)} appears"
    return Event("row_appears", OBJECTS_CHANGE, caption, 12, commands, settle)


@event_kind(OBJECTS_CHANGE)
def object_vanishes(game: DoomGame, rng: np.random.Generator) -> Event | None:
    x, y, heading = (float(game.pose[column]) for column in (X, Y, HEADING))

    def visible(placed: Placed) -> bool:
        distance = np.hypot(placed.x - x, placed.y - y)
        bearing = np.degrees(np.arctan2(placed.y - y, placed.x - x))
        in_view = distance < 320 and abs(degrees_between(bearing - heading)) < 32
        return in_view and placed.area == game.level.area_index(x, y)

    seen = [placed for placed in game.scene.objects if visible(placed)]
    if not seen:
        return None
    placed = _choose(rng, seen)
    commands = {0: (f"special Thing_Remove {placed.tid}",)}

    def settle(game: DoomGame) -> None:
        game.scene.remove(placed.tid)

    caption = f"the {placed.kind.name} vanishes"
    return Event("object_vanishes", OBJECTS_CHANGE, caption, 8, commands, settle, takes_away=(placed.tid,))


# ---- complex interactions


@event_kind(INTERACTION)
def barrel_explodes(game: DoomGame, rng: np.random.Generator) -> Event | None:
    spot = _spot_ahead(game, rng)
    if spot is None:
        return None
    barrel = appear(OBJECTS["barrel"].actor, *spot, tid=EVENT_THING)
    commands = {0: (barrel,), 6: (f"special Thing_Destroy {EVENT_THING}",)}
    return Event("barrel_explodes", INTERACTION, "a barrel appears and explodes", 14, commands)


@event_kind(INTERACTION)
def creature_falls(game: DoomGame, rng: np.random.Generator) -> Event | None:
    character, spot = _choose(rng, CHARACTERS), _spot_ahead(game, rng)
    if spot is None:
        return None
    name, facing = character.words.removeprefix("a "), game.pose[HEADING] + 180
    arrival = appear(figure_actor(character), *spot, angle=facing, tid=EVENT_THING)
    commands = {0: (arrival,), 6: (f"special Thing_Destroy {EVENT_THING}",)}
    settle = _arrives(ObjectKind(f"fallen {name}", figure_actor(character), 0), spot, EVENT_THING)
    return Event("creature_falls", INTERACTION, f"a {name} appears and falls dead", 16, commands, settle)


@event_kind(INTERACTION)
def rocket_explodes(game: DoomGame, rng: np.random.Generator) -> Event | None:
    if not sees(game.level, game.pose[X], game.pose[Y], game.pose[HEADING], 150):
        return None
    return Event("rocket_explodes", INTERACTION, "a rocket flies ahead and explodes", 10, {0: ("summon Rocket",)})


@event_kind(INTERACTION)
def invulnerable(game: DoomGame, rng: np.random.Generator) -> Event | None:
    caption = "the character becomes invulnerable and the colours turn to negative"
    commands = {0: ("give InvulnerabilitySphere",), 13: ("take PowerInvulnerable 1",)}
    return Event("invulnerable", INTERACTION, caption, 14, commands)


@event_kind(INTERACTION)
def protective_suit(game: DoomGame, rng: np.random.Generator) -> Event | None:
    caption = "the character puts on a protective suit and the view turns green"
    commands = {0: ("give RadSuit",), 13: ("take PowerIronFeet 1",)}
    return Event("protective_suit", INTERACTION, caption, 14, commands)


@event_kind(INTERACTION)
def hurt(game: DoomGame, rng: np.random.Generator) -> Event | None:
    commands = {0: ("god2", "special DamageThing 45 0"), 1: ("god2",)}
    return Event("hurt", INTERACTION, "the character is hurt and the view flashes red", 8, commands)


@event_kind(INTERACTION)
def body_changes(game: DoomGame, rng: np.random.Generator) -> Event | None:
    if game.engine.perspective != THIRD_PERSON:
        return None
    character = _choose(rng, [c for c in CHARACTERS if c.name != game.look.character])
    commands = {0: (f"morphme W{character.name}",)}

    def settle(game: DoomGame) -> None:
        game.look = replace(game.look, character=character.name, weapon="")

    return Event("body_changes", INTERACTION, f"the character turns into {character.words}", 10, commands, settle)
