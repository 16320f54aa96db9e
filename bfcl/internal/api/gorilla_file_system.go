package api

import (
	"sort"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// gorillaFileSystemMethods is in the order of gorilla_file_system.json.
var gorillaFileSystemMethods = []Method{
	on1("cat", (*gorillaFileSystem).cat, Required("file_name")),
	on1("cd", (*gorillaFileSystem).cd, Required("folder")),
	on2("cp", (*gorillaFileSystem).cp, Required("source"), Required("destination")),
	on2("diff", (*gorillaFileSystem).diff, Required("file_name1"), Required("file_name2")),
	on1("du", (*gorillaFileSystem).du, Optional("human_readable", false)),
	on2("echo", (*gorillaFileSystem).echo, Required("content"), Optional("file_name", nil)),
	on2("find", (*gorillaFileSystem).find, Optional("path", "."), Optional("name", nil)),
	on2("grep", (*gorillaFileSystem).grep, Required("file_name"), Required("pattern")),
	on1("ls", (*gorillaFileSystem).ls, Optional("a", false)),
	on1("mkdir", (*gorillaFileSystem).mkdir, Required("dir_name")),
	on2("mv", (*gorillaFileSystem).mv, Required("source"), Required("destination")),
	on0("pwd", (*gorillaFileSystem).pwd),
	on1("rm", (*gorillaFileSystem).rm, Required("file_name")),
	on1("rmdir", (*gorillaFileSystem).rmdir, Required("dir_name")),
	on1("sort", (*gorillaFileSystem).sort, Required("file_name")),
	on2("tail", (*gorillaFileSystem).tail, Required("file_name"), Optional("lines", int64(10))),
	on1("touch", (*gorillaFileSystem).touch, Required("file_name")),
	on2("wc", (*gorillaFileSystem).wc, Required("file_name"), Optional("mode", "l")),
}

// File is a file of the simulated file system. A call may store any value in either field.
type File struct {
	Name    py.Value
	Content py.Value
}

func (f *File) PyType() string { return "File" }

func (f *File) PyEqual(other py.Value) bool {
	o, ok := other.(*File)
	return ok && (f == o || py.Equal(f.Name, o.Name) && py.Equal(f.Content, o.Content))
}

func (f *File) PyClone(m *py.Memo) py.Value {
	if c, ok := m.Get(f); ok {
		return c
	}
	c := &File{Name: py.Clone(f.Name, m), Content: py.Clone(f.Content, m)}
	m.Put(f, c)
	return c
}

// Directory is a directory. Its table of contents is a separate object, because a moved directory
// shares the table of the original. The table's values are *File and *Directory.
type Directory struct {
	Name     py.Value
	Parent   *Directory // nil at the root
	Contents *py.Dict
}

func newDirectory(name py.Value, parent *Directory) *Directory {
	return &Directory{Name: name, Parent: parent, Contents: &py.Dict{}}
}

func (d *Directory) PyType() string { return "Directory" }

// PyEqual compares name and contents, not the parent. Directories that contain themselves are equal
// only if they are identical; Python recurses until the call fails.
func (d *Directory) PyEqual(other py.Value) bool {
	o, ok := other.(*Directory)
	if !ok {
		return false
	}
	eq, err := d.equal(o, 0)
	return eq && err == nil
}

// maxTreeDepth is the depth at which Python's recursion limit ends a walk of a directory that
// contains itself.
const maxTreeDepth = 900

func errTreeDepth() error {
	return py.Raise("RecursionError", "maximum recursion depth exceeded in comparison")
}

func (d *Directory) equal(o *Directory, depth int) (bool, error) {
	if depth > maxTreeDepth {
		return false, errTreeDepth()
	}
	if depth > 0 && d == o {
		return true, nil
	}
	if !py.Equal(d.Name, o.Name) || d.Contents.Len() != o.Contents.Len() {
		return false, nil
	}
	for i := range d.Contents.Len() {
		name, item := d.Contents.At(i)
		other, ok := o.Contents.Get(name)
		if !ok {
			return false, nil
		}
		sub, isDir := item.(*Directory)
		osub, oIsDir := other.(*Directory)
		if isDir && oIsDir {
			if eq, err := sub.equal(osub, depth+1); !eq || err != nil {
				return false, err
			}
		} else if !py.Equal(item, other) {
			return false, nil
		}
	}
	return true, nil
}

// PyClone copies the tree below the directory and, through the memo, its parents. A nil memo is for
// trees without sharing, such as a newly loaded one.
func (d *Directory) PyClone(m *py.Memo) py.Value {
	if m == nil {
		return d.cloneTree(d.Parent)
	}
	return d.cloneShared(m)
}

func (d *Directory) cloneTree(parent *Directory) *Directory {
	c := &Directory{Name: d.Name, Parent: parent}
	c.Contents = d.Contents.ShallowCopy()
	files := 0
	for i := range c.Contents.Len() {
		if _, item := c.Contents.At(i); isFile(item) {
			files++
		}
	}
	slab := make([]File, files)
	for i := range c.Contents.Len() {
		switch _, item := c.Contents.At(i); item := item.(type) {
		case *File:
			f := &slab[0]
			slab = slab[1:]
			*f = *item
			c.Contents.SetAt(i, f)
		case *Directory:
			c.Contents.SetAt(i, item.cloneTree(c))
		}
	}
	return c
}

func isFile(v py.Value) bool {
	_, ok := v.(*File)
	return ok
}

func (d *Directory) cloneShared(m *py.Memo) *Directory {
	if c, ok := m.Get(d); ok {
		return c.(*Directory)
	}
	c := &Directory{Name: py.Clone(d.Name, m)}
	m.Put(d, c)
	c.Contents = d.Contents.Clone(m)
	if d.Parent != nil {
		c.Parent = d.Parent.cloneShared(m)
	}
	return c
}

// get returns the entry of that name: the directory itself for ".", nil if there is none.
func (d *Directory) get(name py.Value) (py.Value, error) {
	if s, ok := name.(string); ok {
		if s == "." {
			return d, nil
		}
		item, _ := d.Contents.GetStr(s)
		return item, nil
	}
	item, _, err := d.Contents.GetErr(name)
	return item, err
}

func (d *Directory) addFile(name, content py.Value) error {
	if d.Contents.Has(name) {
		return py.Raise("ValueError", "File '%s' already exists in directory '%s'.", py.Str(name), py.Str(d.Name))
	}
	return d.Contents.SetErr(name, &File{Name: name, Content: content})
}

// addDirectory adds an empty directory with the table contents; nil means a new table.
func (d *Directory) addDirectory(name py.Value) (*Directory, error) {
	if d.Contents.Has(name) {
		return nil, py.Raise("ValueError", "Directory '%s' already exists in directory '%s'.", py.Str(name), py.Str(d.Name))
	}
	sub := newDirectory(name, d)
	return sub, d.Contents.SetErr(name, sub)
}

// gorillaFileSystem implements GorillaFileSystem (bfcl/SPEC.md 13.1).
type gorillaFileSystem struct {
	longContext bool
	root        *Directory
	here        *Directory
}

func newGorillaFileSystem() Instance { return &gorillaFileSystem{} }

// Load builds the tree of scenario["root"], or an empty root named "/".
func (g *gorillaFileSystem) Load(scenario *py.Dict, s *Shared, longContext bool) error {
	g.longContext = longContext
	g.root = newDirectory("/", nil)
	if scenario != nil {
		if v, ok := scenario.GetStr("root"); ok {
			top, ok := v.(*py.Dict)
			if !ok {
				return py.AttributeError(v, "keys")
			}
			if top.Len() == 0 {
				return py.Raise("IndexError", "list index out of range")
			}
			name, node := top.At(0)
			contents, err := nodeContents(node)
			if err != nil {
				return err
			}
			l := &treeLoader{longContext: longContext}
			if longContext {
				if err := l.readConstants(s); err != nil {
					return err
				}
			}
			g.root = newDirectory(name, nil)
			if err := l.fill(g.root, contents, 0); err != nil {
				return err
			}
		}
	}
	g.here = g.root
	return nil
}

// treeLoader converts scenario nodes to directories and files.
type treeLoader struct {
	longContext bool
	extension   string          // appended to every file that is not in tail
	tail        map[string]bool // names of files that keep their content
	populate    []py.Value      // names of the files added to leaf directories
}

func (l *treeLoader) readConstants(s *Shared) error {
	var ok bool
	if l.extension, ok = s.Long["FILE_CONTENT_EXTENSION"].(string); !ok {
		return py.Raise("ValueError", "the long-context constant FILE_CONTENT_EXTENSION is missing or not a text")
	}
	tail, ok := s.Long["FILES_TAIL_USED"].(*py.List)
	if !ok {
		return py.Raise("ValueError", "the long-context constant FILES_TAIL_USED is missing or not a list")
	}
	populate, ok := s.Long["POPULATE_FILE_EXTENSION"].(*py.List)
	if !ok {
		return py.Raise("ValueError", "the long-context constant POPULATE_FILE_EXTENSION is missing or not a list")
	}
	l.tail = make(map[string]bool, len(tail.Items))
	for _, v := range tail.Items {
		l.tail[py.Str(v)] = true
	}
	l.populate = populate.Items
	return nil
}

func nodeContents(node py.Value) (*py.Dict, error) {
	d, ok := node.(*py.Dict)
	if !ok {
		return nil, py.Raise("TypeError", "a directory of the scenario is a %s, not a dict", py.TypeName(node))
	}
	v, err := d.Index("contents")
	if err != nil {
		return nil, err
	}
	contents, ok := v.(*py.Dict)
	if !ok {
		return nil, py.AttributeError(v, "items")
	}
	return contents, nil
}

func (l *treeLoader) fill(dir *Directory, contents *py.Dict, depth int) error {
	if depth > maxTreeDepth {
		return errTreeDepth()
	}
	leaf := true
	for i := range contents.Len() {
		name, v := contents.At(i)
		node, ok := v.(*py.Dict)
		if !ok {
			return py.Raise("TypeError", "the entry '%s' of the scenario is a %s, not a dict", py.Str(name), py.TypeName(v))
		}
		kind, err := node.Index("type")
		if err != nil {
			return err
		}
		switch kind {
		case "directory":
			leaf = false
			sub := newDirectory(name, dir)
			below, err := nodeContents(node)
			if err != nil {
				return err
			}
			if err := l.fill(sub, below, depth+1); err != nil {
				return err
			}
			dir.Contents.Set(name, sub)
		case "file":
			content, err := node.Index("content")
			if err != nil {
				return err
			}
			if l.longContext && !l.tail[py.Str(name)] {
				if content, err = py.Add(content, l.extension); err != nil {
					return err
				}
			}
			dir.Contents.Set(name, &File{Name: name, Content: content})
		}
	}
	if leaf && l.longContext {
		for _, name := range l.populate {
			if err := dir.addFile(name, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gorillaFileSystem) State() []Attr {
	return []Attr{{"long_context", g.longContext}, {"root", g.root}}
}

// Private returns the current directory as pwd prints it.
func (g *gorillaFileSystem) Private() []Attr {
	path, err := g.path()
	if err != nil {
		return []Attr{{"cwd", nil}}
	}
	return []Attr{{"cwd", path}}
}

// Clone also copies directories that are reachable only as parents of moved ones.
func (g *gorillaFileSystem) Clone(m *py.Memo) Instance {
	c := &gorillaFileSystem{longContext: g.longContext}
	if m == nil && g.here == g.root {
		c.root = g.root.cloneTree(nil)
		c.here = c.root
		return c
	}
	if m == nil {
		m = &py.Memo{}
	}
	c.root = g.root.cloneShared(m)
	c.here = g.here.cloneShared(m)
	return c
}

// failure returns the reply {"error": ...} of the file tools.
func failure(parts ...string) *py.Dict { return py.NewDict("error", strings.Join(parts, "")) }

// path joins the names from the root to the current directory.
func (g *gorillaFileSystem) path() (string, error) {
	var names []string
	for d := g.here; d != nil; d = d.Parent {
		name, ok := d.Name.(string)
		if !ok {
			return "", py.Raise("TypeError", "sequence item %d: expected str instance, %s found", len(names),
				py.TypeName(d.Name))
		}
		names = append(names, name)
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(names[i])
	}
	return b.String(), nil
}

func (g *gorillaFileSystem) pwd() (py.Value, error) {
	path, err := g.path()
	return py.NewDict("current_working_directory", path), err
}

func (g *gorillaFileSystem) ls(all py.Value) (py.Value, error) {
	names := make([]py.Value, 0, g.here.Contents.Len())
	for i := range g.here.Contents.Len() {
		name, _ := g.here.Contents.At(i)
		if !py.Truthy(all) {
			s, ok := name.(string)
			if !ok {
				return nil, py.AttributeError(name, "startswith")
			}
			if strings.HasPrefix(s, ".") {
				continue
			}
		}
		names = append(names, name)
	}
	return py.NewDict("current_directory_content", py.NewList(names...)), nil
}

func (g *gorillaFileSystem) cd(v py.Value) (py.Value, error) {
	folder, ok := v.(string)
	if !ok {
		return nil, py.AttributeError(v, "rstrip")
	}
	folder = strings.TrimRight(folder, "/")
	if folder == "" {
		folder = "/"
	}
	if folder != "/" && strings.Contains(folder, "/") {
		return failure("cd: ", folder, ": Unsupported path. Only one folder level at a time is supported."), nil
	}
	if folder == ".." {
		if g.here.Parent != nil {
			g.here = g.here.Parent
			return py.NewDict(), nil
		}
		atRoot, err := g.root.equal(g.here, 0)
		if err != nil {
			return nil, err
		}
		if atRoot {
			return failure("Current directory is already the root. Cannot go back."), nil
		}
		return failure("cd: ..: No such directory"), nil
	}
	target := g.navigate(folder)
	if target == nil {
		return navigationError("cd", folder), nil
	}
	g.here = target
	return py.NewDict("current_working_directory", target.Name), nil
}

// navigate follows a relative or absolute path; it returns nil if the path does not exist.
func (g *gorillaFileSystem) navigate(path string) *Directory {
	switch path {
	case ".":
		return g.here
	case "/":
		return g.root
	}
	dir := g.here
	if strings.HasPrefix(path, "/") {
		dir = g.root
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		item, _ := dir.get(name) // a string is always hashable
		sub, ok := item.(*Directory)
		if !ok {
			return nil
		}
		dir = sub
	}
	return dir
}

func navigationError(tool, path string) *py.Dict {
	return failure(tool, ": '", path, "': No such file or directory")
}

const badNameRunes = `|/\?%*:"><`

// badName reports whether a name contains a forbidden character. Python evaluates "c in name", so a
// list is searched for items and a number raises a TypeError.
func badName(name py.Value) (bool, error) {
	if s, ok := name.(string); ok {
		return strings.ContainsAny(s, badNameRunes), nil
	}
	for _, c := range badNameRunes {
		if in, err := py.Contains(name, string(c)); in || err != nil {
			return in, err
		}
	}
	return false, nil
}

// has returns "name in contents"; an unhashable name is an error.
func (g *gorillaFileSystem) has(name py.Value) (bool, error) {
	_, ok, err := g.here.Contents.GetErr(name)
	return ok, err
}

// entry returns the entry of the current directory with that name.
func (g *gorillaFileSystem) entry(name py.Value) (item py.Value, exists bool, err error) {
	if exists, err = g.has(name); !exists || err != nil {
		return nil, false, err
	}
	item, err = g.here.get(name)
	return item, true, err
}

// refuseNew returns the refusal of a name that no new entry can have, or None. It begins with prefix.
func (g *gorillaFileSystem) refuseNew(prefix string, name py.Value) (py.Value, error) {
	bad, err := badName(name)
	if err != nil {
		return nil, err
	}
	if bad {
		return failure(prefix, " '", py.Str(name), "': Invalid character"), nil
	}
	exists, err := g.has(name)
	if !exists || err != nil {
		return nil, err
	}
	return failure(prefix, " '", py.Str(name), "': File exists"), nil
}

func (g *gorillaFileSystem) mkdir(name py.Value) (py.Value, error) {
	if refusal, err := g.refuseNew("mkdir: cannot create directory", name); refusal != nil || err != nil {
		return refusal, err
	}
	_, err := g.here.addDirectory(name)
	return nil, err
}

func (g *gorillaFileSystem) touch(name py.Value) (py.Value, error) {
	if refusal, err := g.refuseNew("touch: cannot touch", name); refusal != nil || err != nil {
		return refusal, err
	}
	return nil, g.here.addFile(name, "")
}

func (g *gorillaFileSystem) echo(content, name py.Value) (py.Value, error) {
	if name == nil {
		return py.NewDict("terminal_output", content), nil
	}
	bad, err := badName(name)
	if err != nil {
		return nil, err
	}
	if bad {
		return failure("echo: cannot write to '", py.Str(name), "': Invalid character"), nil
	}
	if !py.Truthy(name) {
		return py.NewDict("terminal_output", content), nil
	}
	item, exists, err := g.entry(name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return failure("echo: cannot write to '", py.Str(name), "': No such file"), nil
	}
	f, ok := item.(*File)
	if !ok {
		return nil, py.AttributeError(item, "_write")
	}
	f.Content = content
	return nil, nil
}

func (g *gorillaFileSystem) cat(name py.Value) (py.Value, error) {
	bad, err := badName(name)
	if err != nil {
		return nil, err
	}
	if bad {
		return failure("cat: '", py.Str(name), "': Invalid character"), nil
	}
	item, exists, err := g.entry(name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return failure("cat: '", py.Str(name), "': No such file or directory"), nil
	}
	if f, ok := item.(*File); ok {
		return py.NewDict("file_content", f.Content), nil
	}
	return failure("cat: '", py.Str(name), "': Is a directory"), nil
}

// file returns the file of that name, or nil for a directory or no entry.
func (g *gorillaFileSystem) file(name py.Value) (*File, error) {
	item, _, err := g.entry(name)
	f, _ := item.(*File)
	return f, err
}

// text returns the content as a string, or Python's AttributeError for the method that the tool
// calls.
func (f *File) text(method string) (string, error) {
	s, ok := f.Content.(string)
	if !ok {
		return "", py.AttributeError(f.Content, method)
	}
	return s, nil
}

func (f *File) lines() ([]string, error) {
	text, err := f.text("splitlines")
	return py.SplitLines(text), err
}

// lines returns the lines of a file, or the reply of a tool that there is none.
func (g *gorillaFileSystem) lines(tool string, name py.Value) (lines []string, missing py.Value, err error) {
	f, err := g.file(name)
	if err != nil {
		return nil, nil, err
	}
	if f == nil {
		return nil, failure(tool, ": ", py.Str(name), ": No such file or directory"), nil
	}
	lines, err = f.lines()
	return lines, nil, err
}

func (g *gorillaFileSystem) find(path, name py.Value) (py.Value, error) {
	p, isText := path.(string)
	switch {
	case path == nil:
		return nil, py.AttributeError(path, "rstrip")
	case !isText:
		return nil, py.AttributeError(path, "strip")
	}
	start := g.navigate(p)
	if start == nil {
		return navigationError("find", p), nil
	}
	matches := py.NewList()
	if err := findBelow(start, strings.TrimRight(p, "/"), name, matches, 0); err != nil {
		return nil, err
	}
	return py.NewDict("matches", matches), nil
}

func findBelow(dir *Directory, prefix string, name py.Value, matches *py.List, depth int) error {
	if depth > maxTreeDepth {
		return errTreeDepth()
	}
	for i := range dir.Contents.Len() {
		key, item := dir.Contents.At(i)
		path := prefix + "/" + py.Str(key)
		hit := name == nil
		if !hit {
			var err error
			if hit, err = py.Contains(key, name); err != nil {
				return err
			}
		}
		if hit {
			matches.Append(path)
		}
		if sub, ok := item.(*Directory); ok {
			if err := findBelow(sub, path, name, matches, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gorillaFileSystem) wc(name, mode py.Value) (py.Value, error) {
	m, _ := mode.(string)
	if m != "l" && m != "w" && m != "c" {
		return failure("wc: invalid mode '", py.Str(mode), "'"), nil
	}
	f, err := g.file(name)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return failure("wc: ", py.Str(name), ": No such file or directory"), nil
	}
	count, kind := 0, "characters"
	switch m {
	case "l":
		kind = "lines"
		var lines []string
		lines, err = f.lines()
		count = len(lines)
	case "w":
		kind = "words"
		var text string
		text, err = f.text("split")
		count = len(strings.FieldsFunc(text, py.Space))
	default:
		count, err = py.Len(f.Content)
	}
	if err != nil {
		return nil, err
	}
	return py.NewDict("count", int64(count), "type", kind), nil
}

func (g *gorillaFileSystem) sort(name py.Value) (py.Value, error) {
	lines, missing, err := g.lines("sort", name)
	if missing != nil || err != nil {
		return missing, err
	}
	sort.Strings(lines) // byte order of UTF-8 is code point order
	return py.NewDict("sorted_content", strings.Join(lines, "\n")), nil
}

func (g *gorillaFileSystem) grep(name, pattern py.Value) (py.Value, error) {
	lines, missing, err := g.lines("grep", name)
	if missing != nil || err != nil {
		return missing, err
	}
	found := py.NewList()
	for _, line := range lines {
		hit, err := py.Contains(line, pattern)
		if err != nil {
			return nil, err
		}
		if hit {
			found.Append(line)
		}
	}
	return py.NewDict("matching_lines", found), nil
}

func (g *gorillaFileSystem) tail(name, count py.Value) (py.Value, error) {
	lines, missing, err := g.lines("tail", name)
	if missing != nil || err != nil {
		return missing, err
	}
	more, err := py.Compare(">", count, int64(len(lines)))
	if err != nil {
		return nil, err
	}
	if more {
		count = int64(len(lines))
	}
	if _, ok := count.(float64); ok {
		return nil, py.Raise("TypeError", "slice indices must be integers or None or have an __index__ method")
	}
	from := len(lines) // a count below -len(lines) selects no lines
	whole, err := py.Int(count)
	if err != nil {
		return nil, err
	}
	if n, ok := whole.(int64); ok && -n < int64(len(lines)) {
		from = int(-n)
		if from < 0 {
			from += len(lines)
		}
	}
	return py.NewDict("last_lines", strings.Join(lines[from:], "\n")), nil
}

func (g *gorillaFileSystem) diff(name1, name2 py.Value) (py.Value, error) {
	f1, err := g.file(name1)
	if err != nil {
		return nil, err
	}
	missing := failure("diff: ", py.Str(name1), " or ", py.Str(name2), ": No such file or directory")
	if exists, _ := g.has(name1); !exists {
		return missing, nil
	}
	f2, err := g.file(name2)
	if err != nil {
		return nil, err
	}
	if f1 == nil || f2 == nil {
		return missing, nil
	}
	lines1, err := f1.lines()
	if err != nil {
		return nil, err
	}
	lines2, err := f2.lines()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := range min(len(lines1), len(lines2)) {
		if lines1[i] == lines2[i] {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("- ")
		b.WriteString(lines1[i])
		b.WriteString("\n+ ")
		b.WriteString(lines2[i])
	}
	return py.NewDict("diff_lines", b.String()), nil
}

func (g *gorillaFileSystem) du(human py.Value) (py.Value, error) {
	total, err := size(g.here, 0)
	if err != nil {
		return nil, err
	}
	if !py.Truthy(human) {
		return py.NewDict("disk_usage", py.Str(total)+" bytes"), nil
	}
	amount := float64(total)
	for _, unit := range []string{"B", "KB", "MB", "GB", "TB"} {
		if amount < 1024 {
			return py.NewDict("disk_usage", py.Fixed(amount, 2)+" "+unit), nil
		}
		amount /= 1024
	}
	return py.NewDict("disk_usage", py.Fixed(amount, 2)+" PB"), nil
}

// size returns the number of UTF-8 bytes of all file contents below an item.
func size(item py.Value, depth int) (int64, error) {
	if depth > maxTreeDepth {
		return 0, errTreeDepth()
	}
	switch item := item.(type) {
	case *File:
		text, err := item.text("encode")
		return int64(len(text)), err
	case *Directory:
		var total int64
		for i := range item.Contents.Len() {
			_, child := item.Contents.At(i)
			n, err := size(child, depth+1)
			if err != nil {
				return 0, err
			}
			total += n
		}
		return total, nil
	}
	return 0, nil
}

func (g *gorillaFileSystem) rm(name py.Value) (py.Value, error) {
	exists, err := g.has(name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return failure("rm: cannot remove '", py.Str(name), "': No such file or directory"), nil
	}
	g.here.Contents.Delete(name)
	return py.NewDict("result", "'"+py.Str(name)+"' removed"), nil
}

func (g *gorillaFileSystem) rmdir(name py.Value) (py.Value, error) {
	item, exists, err := g.entry(name)
	if err != nil {
		return nil, err
	}
	dir, ok := item.(*Directory)
	switch {
	case !exists:
		return failure("rmdir: cannot remove '", py.Str(name), "': No such file or directory"), nil
	case !ok:
		return failure("rmdir: cannot remove '", py.Str(name), "': Not a directory"), nil
	case dir.Contents.Len() > 0:
		return failure("rmdir: cannot remove '", py.Str(name), "': Directory not empty"), nil
	}
	g.here.Contents.Delete(name)
	return py.NewDict("result", "'"+py.Str(name)+"' removed"), nil
}

func (g *gorillaFileSystem) mv(source, destination py.Value) (py.Value, error) {
	return g.transfer("mv", "move", "moved", source, destination)
}

func (g *gorillaFileSystem) cp(source, destination py.Value) (py.Value, error) {
	return g.transfer("cp", "copy", "copied", source, destination)
}

// transfer implements mv and cp: identical checks in identical order, into a directory or to a new
// name.
func (g *gorillaFileSystem) transfer(tool, verb, done string, source, destination py.Value) (py.Value, error) {
	item, exists, err := g.entry(source)
	if err != nil {
		return nil, err
	}
	from := py.Str(source)
	if !exists {
		return failure(tool, ": cannot ", verb, " '", from, "': No such file or directory"), nil
	}
	slash, err := py.Contains(destination, "/")
	if err != nil {
		return nil, err
	}
	if slash {
		return failure(tool, ": path not allowed in destination. Provide only a file or directory name."), nil
	}
	at, taken, err := g.entry(destination)
	if err != nil {
		return nil, err
	}
	to := py.Str(destination)
	target, name := g.here, destination
	if taken {
		dir, ok := at.(*Directory)
		if !ok {
			return failure(tool, ": cannot ", verb, " '", from, "' to '", to, "': Not a directory"), nil
		}
		key := to + "/" + from // cp looks up this key, which no directory has
		if tool == "mv" {
			key = from
		}
		if dir.Contents.HasStr(key) {
			return failure(tool, ": cannot ", verb, " '", from, "' to '", to, "/", from, "': File exists"), nil
		}
		target, name, to = dir, source, to+"/"+from
	}
	if tool == "mv" {
		g.here.Contents.Delete(source)
	}
	if err := place(target, name, item, tool == "cp"); err != nil {
		return nil, err
	}
	return py.NewDict("result", "'"+from+"' "+done+" to '"+to+"'"), nil
}

// place adds an item under a name: a file as a new file; a directory as a new directory with the
// original's table or, for a copy, with a new table of the same objects.
func place(target *Directory, name, item py.Value, copied bool) error {
	switch item := item.(type) {
	case *File:
		return target.addFile(name, item.Content)
	case *Directory:
		dir, err := target.addDirectory(name)
		if err != nil {
			return err
		}
		dir.Contents = item.Contents
		if copied {
			dir.Contents = item.Contents.ShallowCopy()
		}
	}
	return nil
}
