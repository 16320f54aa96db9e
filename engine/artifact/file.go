package artifact

// File is a file or folder of the user's that a setting names with file() or dir(). Keys contain the digest only, so
// moving the data or the experiment changes nothing.
type File struct {
	Path   string // where it lies, absolute
	Digest string // of its content
	Dir    bool   // named with dir()
}
