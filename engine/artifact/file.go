package artifact

// File is a file or folder that a setting names with file() or dir(). Keys contain the digest only, so data
// and experiments can move.
type File struct {
	Path   string // absolute
	Digest string // of the content
	Dir    bool   // named with dir()
}

// Data is a setting that names either a file or folder, or a port of another stage.
type Data struct {
	File File // zero when Ref is set
	Ref  Ref  // zero when File is set
}
