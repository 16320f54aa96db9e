package artifact

// File is a file or folder of the user's that an experiment names with file() or dir().
type File struct {
	Path   string // absolute; never part of a key
	Digest string // of the content: "sha256:…"
	Dir    bool
}
