"""Who and what can stand in a level, as DECORATE and MAPINFO text: bodies, objects, pickups, weather."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from world_model.data.doom.art import COLOURS, SHAPES, shape_sprite

SPEED = 6.0  # units per tic in each of the four directions, exact (see `_player`)
BODY_RADIUS = 16.0  # the player's collision box reaches this far along x and y
FIRST_EDITOR_NUMBER = 20000
HEALTH_PACK, EXIT = "health pack", "exit"


@dataclass(frozen=True)
class Character:
    """A body the player can wear: Freedoom sprite, its death frames and its words in the caption."""

    name: str
    sprite: str
    falls: str
    words: str


CHARACTERS = (
    Character("Marine", "PLAY", "HIJKLMN", "a space marine"),
    Character("Zombie", "POSS", "HIJKL", "a ragged zombie"),
    Character("Sergeant", "SPOS", "HIJKL", "a black-clad sergeant"),
    Character("Gunner", "CPOS", "HIJKLMN", "a heavy gunner"),
    Character("Serpent", "TROO", "IJKLM", "a brown serpent"),
    Character("Skeleton", "SKEL", "LMNOPQ", "a horned skeleton"),
    Character("Beast", "SARG", "IJKLMN", "a pink beast"),
    Character("Brute", "BOSS", "IJKLMNO", "a huge armoured brute"),
)
ARMOUR = {  # the engine recolours the green range of a sprite, which only the marine wears
    "green": "40 cf 00",
    "red": "ff 00 00",
    "blue": "20 20 ff",
    "purple": "c0 00 c0",
    "yellow": "e0 c0 20",
    "white": "f0 f0 f0",
}
WEAPONS = {  # caption word -> actor class
    "pistol": "Pistol",
    "shotgun": "Shotgun",
    "chaingun": "Chaingun",
    "rocket launcher": "RocketLauncher",
}


@dataclass(frozen=True)
class ObjectKind:
    """Something that can stand in a room. ``radius`` is its collision radius, 0 if it can be walked through."""

    name: str
    actor: str
    radius: float


DECORATIONS = (
    ObjectKind("tech lamp", "TechLamp", 16),
    ObjectKind("floor lamp", "Column", 16),
    ObjectKind("blue torch", "BlueTorch", 16),
    ObjectKind("green torch", "GreenTorch", 16),
    ObjectKind("red torch", "RedTorch", 16),
    ObjectKind("large tree", "BigTree", 32),
    ObjectKind("bare tree", "TorchTree", 16),
    ObjectKind("candelabra", "Candelabra", 16),
    ObjectKind("barrel", "ExplosiveBarrel", 10),
    ObjectKind("green column", "TallGreenColumn", 16),
)
OWN_SHAPES = tuple(
    ObjectKind(f"{colour} {shape}", f"{colour.capitalize()}{shape.capitalize()}", 20)
    for shape in SHAPES
    for colour in COLOURS
)
PICKUP = ObjectKind(HEALTH_PACK, "HealthPack", 0)
EXIT_MARKER = ObjectKind(EXIT, "ExitMarker", 0)
OBJECTS = {kind.name: kind for kind in (*OWN_SHAPES, *DECORATIONS, PICKUP, EXIT_MARKER)}
EDITOR_NUMBERS = {name: FIRST_EDITOR_NUMBER + k for k, name in enumerate(OBJECTS)}


def figure_actor(character: Character) -> str:
    """The actor class of a character that stands in the level by itself (no artificial intelligence)."""
    return f"Figure{character.name}"


def appear(actor: str, x: float, y: float, angle: float = 0, tid: int = 0) -> str:
    """The console command that puts an actor at an absolute place on the floor."""
    return f"summon At{actor} 0 0 0 {round(x)} {round(y)} 0 {round(angle) % 360} {tid}"


# A velocity of exactly zero makes the engine call PlayIdle, after which the player no longer moves.
_STOP = "A_ChangeVelocity(0.00002,0,velz,CVF_REPLACE)"


def _player(character: Character) -> str:
    """A player class without inertia: each one-tic state first replaces the velocity, then the input adds
    exactly `SPEED` (7.68 and 8 are the engine's forward and side scales for that)."""
    sprite = character.sprite
    walk = "\n".join(f"  {sprite} {frame} 1 {_STOP}" for frame in "ABCD" for _ in range(4))
    stand = "\n".join(f"  {sprite} A 1 {_STOP}" for _ in range(6))
    return f"""ACTOR W{character.name} : DoomPlayer {{
 Player.DisplayName "{character.name}"
 Player.ForwardMove 7.68, 10.24
 Player.SideMove 8.0, 10.24
 Player.JumpZ 8
 States {{
 Spawn:
  {sprite} A -1
  Loop
 See:
  {sprite} A 1
 Walk:
{walk}
  Loop
 Melee:
 Missile:
 Pain:
{stand}
  Goto Spawn
 }} }}"""


def _figure(character: Character) -> str:
    falling = "\n".join(f"  {character.sprite} {frame} 5" for frame in character.falls)
    return f"""ACTOR {figure_actor(character)} {{
 Radius 20 Height 56 Health 10 Mass 10000
 +SOLID +SHOOTABLE +NOBLOOD
 States {{
 Spawn:
  {character.sprite} A -1
  Stop
 Death:
  {character.sprite} {character.falls[0]} 5 A_NoBlocking
{falling}
  {character.sprite} {character.falls[-1]} -1
  Stop
 }} }}"""


def _shape(kind: ObjectKind, sprite: str) -> str:
    return f"ACTOR {kind.actor} {{ Radius 20 Height 48 Scale 0.75 +SOLID States {{ Spawn: {sprite} A -1\n Stop }} }}"


def _spawner(actor: str) -> str:
    """An invisible actor that creates another one at the absolute place in its arguments."""
    flags = "SXF_ABSOLUTEPOSITION|SXF_ABSOLUTEANGLE|SXF_NOCHECKPOSITION"
    return f"""ACTOR At{actor} {{ +NOINTERACTION +NOCLIP Radius 1 Height 1 States {{ Spawn: TNT1 A 0
  TNT1 A 1 A_SpawnItemEx("{actor}",args[0]-x,args[1]-y,args[2]-z,0,0,0,args[3],{flags},0,args[4])
  Stop }} }}"""


def _weather(name: str, sprite: str, fall: int, per_tic: int) -> str:
    place = f'"{name}Drop",frandom(-260,260),frandom(-260,260),frandom(60,120),0,0,{fall},0,SXF_NOCHECKPOSITION'
    spawn = "\n".join(f"  TNT1 A 0 A_SpawnItemEx({place})" for _ in range(per_tic))
    return f"""ACTOR {name}Drop {{ +NOBLOCKMAP +NOGRAVITY +MISSILE +DONTSPLASH Radius 1 Height 1 Speed 0 Damage 0
 States {{
 Spawn: {sprite} A 40 BRIGHT
  Stop
 Death: TNT1 A 1
  Stop }} }}
ACTOR {name}Source {{ +NOINTERACTION +NOCLIP Radius 1 Height 1 States {{ Spawn: TNT1 A 0
 Tick: TNT1 A 0 A_Warp(AAPTR_PLAYER1,0,0,0,0,WARPF_NOCHECKPOSITION|WARPF_INTERPOLATE)
{spawn}
  TNT1 A 1
  Goto Tick }} }}"""


_PICKUPS = """ACTOR HealthPack : CustomInventory {
 Radius 20 Height 32 Scale 0.75
 +COUNTITEM +INVENTORY.ALWAYSPICKUP +INVENTORY.QUIET
 Inventory.PickupMessage ""
 States { Spawn: HPAK A -1
  Stop
 Pickup: TNT1 A 0
  Stop } }
ACTOR ExitMarker { Radius 1 Height 1 +NOBLOCKMAP Scale 0.9 States { Spawn: EXIT A -1 BRIGHT
 Stop } }"""


@functools.cache
def decorate() -> str:
    """The DECORATE lump."""
    actors = [_player(character) for character in CHARACTERS]
    actors += [_figure(character) for character in CHARACTERS]
    shapes = [(shape, colour) for shape in SHAPES for colour in COLOURS]
    actors += [_shape(kind, shape_sprite(*look)) for kind, look in zip(OWN_SHAPES, shapes, strict=True)]
    actors += [_PICKUPS, _weather("Rain", "DROP", -14, 24), _weather("Snow", "FLAK", -5, 8)]
    appearing = [kind.actor for kind in OBJECTS.values()] + [figure_actor(c) for c in CHARACTERS]
    actors += [_spawner(actor) for actor in (*appearing, "TeleportFog")]
    return "\n".join(actors)


def mapinfo(skies: dict[str, str]) -> str:
    """The MAPINFO lump for maps given as ``map name -> sky texture``."""
    classes = ", ".join(f'"W{character.name}"' for character in CHARACTERS)
    maps = [
        f'map {name} "{name}" {{ sky1 = "{sky}", 0.0\n aircontrol = 1.0\n allowjump\n nointermission }}'
        for name, sky in skies.items()
    ]
    numbers = "\n".join(f" {EDITOR_NUMBERS[name]} = {kind.actor}" for name, kind in OBJECTS.items())
    return "\n".join([f"gameinfo {{ playerclasses = {classes} }}", *maps, "DoomEdNums {", numbers, "}", ""])
