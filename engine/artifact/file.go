package artifact

// File is a file or folder of the user's that a setting names with file() or dir(). Keys contain the digest only, so
// moving the data or the experiment changes nothing.
type File struct {
	Path   string // where it lies, absolute
	Digest string // of its content
	Dir    bool   // named with dir()
}

// Data is what a setting takes that may be either: a file or folder of the user's, or a port of another stage.
type Data struct {
	File File // zero when Ref is set
	Ref  Ref  // zero when File is set
}
