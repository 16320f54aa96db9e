package remote

import "rcgrpo/engine/artifact"

// manifests is the prefix of all manifests.
const manifests = "results/"

func manifestName(key string) string { return manifests + key + ".json" }

// objectPrefix is that of the files of an object.
func objectPrefix(o artifact.Output) string { return "objects/" + o.Digest + "/" }
