"""Public video with camera poses: readers for Sekai, SpatialVID and plain folders, into a `ClipStore`.

From the bottom up: `poses` is a checked camera trajectory, `arrays` reads its numbers, `stitching` joins pieces of
one, `actions` turns it into `FrameAction` rows; `video` decodes and crops, `captions` reads what is said about a clip,
`quality` measures and refuses; `sources` says what a reader hands over, and `sekai`, `spatialvid`, `folder` are the
readers; `manifest` notes where every clip came from, `convert` does all of it and `command` is ``wp2 import``.
Nothing is downloaded here.
"""
