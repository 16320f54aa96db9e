package gguf

// Shapes returns the shapes of all tensors, as in a Hugging Face file.
func Shapes(f *File) map[string][]int {
	all := map[string][]int{}
	for name, t := range f.tensors {
		all[name] = t.shape
	}
	return all
}
