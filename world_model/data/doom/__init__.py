"""The Doom recording engine: generated levels, exact captions, checked events, true rewards (needs the extra `doom`).

From the bottom up: `wad`, `art`, `maps`, `actors`, `levels` make a level; `motion`, `engine` move the player in it;
`scene`, `events`, `tasks`, `game` tell what is true about it; `navigation`, `policies`, `starts` play it; `recipe`,
`take`, `freedoom`, `studio`, `job`, `record` turn play into stored clips, `task_starts` into starts of
tasks. Only `engine` and what stands on it import vizdoom, so that reading clips and planning a recording work without
it.
"""
