package api

import (
	"cmp"
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

func (f *File) PyParts() (name, content py.Value) { return f.Name, f.Content }

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

// PyParts returns the parts below the directory, without its parent.
func (d *Directory) PyParts() (name, contents py.Value) { return d.Name, d.Contents }

// PyEqual compares name and contents, not the parent. Directories that contain themselves are equal
// only if they are identical; Python recurses until the call fails.
func (d *Directory) PyEqual(other py.Value) bool {
	o, ok := other.(*Directory)
	if !ok {
		return false
	}
	equal, err := d.equal(o, 0)
	return equal && err == nil
}

// maxTreeDepth is the depth at which Python's recursion limit ends a walk of a directory that
// contains itself.
const maxTreeDepth = 900

func errTreeDepth() error {
	return py.Raise("RecursionError", "maximum recursion depth exceeded in comparison")
}

// checkTreeDepth raises a RecursionError beyond maxTreeDepth.
func checkTreeDepth(depth int) {
	if depth > maxTreeDepth {
		panic(errTreeDepth())
	}
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
	for name, item := range d.Contents.All() {
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

// PyClone copies the tree below the directory and, through the memo, its parents.
func (d *Directory) PyClone(m *py.Memo) py.Value { return d.clone(m) }

func (d *Directory) clone(m *py.Memo) *Directory {
	if c, ok := m.Get(d); ok {
		return c.(*Directory)
	}
	c := &Directory{Name: py.Clone(d.Name, m)}
	m.Put(d, c)
	c.Contents = d.Contents.Clone(m)
	if d.Parent != nil {
		c.Parent = d.Parent.clone(m)
	}
	return c
}

// get returns the entry of that name: the directory itself for ".", nil if there is none.
func (d *Directory) get(name py.Value) py.Value {
	if s, ok := name.(string); ok {
		if s == "." {
			return d
		}
		item, _ := d.Contents.Get(s)
		return item
	}
	item, _ := get(d.Contents, name)
	return item
}

func (d *Directory) addFile(name, content py.Value) {
	if d.Contents.Has(name) {
		panic(py.Raise("ValueError", "File '%s' already exists in directory '%s'.", py.Str(name), py.Str(d.Name)))
	}
	check(d.Contents.SetErr(name, &File{Name: name, Content: content}))
}

// addDirectory adds an empty directory and returns it.
func (d *Directory) addDirectory(name py.Value) *Directory {
	if d.Contents.Has(name) {
		panic(py.Raise("ValueError", "Directory '%s' already exists in directory '%s'.", py.Str(name), py.Str(d.Name)))
	}
	sub := newDirectory(name, d)
	check(d.Contents.SetErr(name, sub))
	return sub
}

// gorillaFileSystem implements GorillaFileSystem (bfcl/SPEC.md 13.1).
type gorillaFileSystem struct {
	longContext bool
	root        *Directory
	here        *Directory // current directory
}

func newGorillaFileSystem() Instance { return &gorillaFileSystem{} }

// Load builds the tree of scenario["root"], or an empty root named "/".
func (g *gorillaFileSystem) Load(scenario *py.Dict, s *Shared, longContext bool) (err error) {
	defer catch(&err)
	g.longContext = longContext
	g.root = newDirectory("/", nil)
	g.here = g.root
	if scenario == nil || !scenario.Has("root") {
		return nil
	}
	top := asDict(field(scenario, "root"), "keys")
	if top.Len() == 0 {
		panic(py.Raise("IndexError", "list index out of range"))
	}
	name, node := top.At(0)
	contents := nodeContents(node)
	l := &treeLoader{longContext: longContext}
	if longContext {
		l.readConstants(s)
	}
	g.root = newDirectory(name, nil)
	g.here = g.root
	l.fill(g.root, contents, 0)
	return nil
}

// treeLoader converts scenario nodes to directories and files.
type treeLoader struct {
	longContext bool
	extension   string          // text that is appended to every file whose name is not in tail
	tail        map[string]bool // names of the files that keep their content
	populate    []py.Value      // names of the files added to leaf directories
}

// readConstants sets the fields of long context. It raises a ValueError if a constant is missing.
func (l *treeLoader) readConstants(s *Shared) {
	var ok bool
	if l.extension, ok = s.Long["FILE_CONTENT_EXTENSION"].(string); !ok {
		panic(py.Raise("ValueError", "the long-context constant FILE_CONTENT_EXTENSION is missing or not a text"))
	}
	tail, ok := s.Long["FILES_TAIL_USED"].(*py.List)
	if !ok {
		panic(py.Raise("ValueError", "the long-context constant FILES_TAIL_USED is missing or not a list"))
	}
	populate, ok := s.Long["POPULATE_FILE_EXTENSION"].(*py.List)
	if !ok {
		panic(py.Raise("ValueError", "the long-context constant POPULATE_FILE_EXTENSION is missing or not a list"))
	}
	l.tail = make(map[string]bool, len(tail.Items))
	for _, v := range tail.Items {
		l.tail[py.Str(v)] = true
	}
	l.populate = populate.Items
}

// nodeContents returns the entries of a directory of the scenario.
func nodeContents(node py.Value) *py.Dict {
	d, ok := node.(*py.Dict)
	if !ok {
		panic(py.Raise("TypeError", "a directory of the scenario is a %s, not a dict", py.TypeName(node)))
	}
	return asDict(try(d.Index("contents")), "items")
}

// fill adds the entries of a directory of the scenario to dir. Entries that are neither directory nor file are skipped.
func (l *treeLoader) fill(dir *Directory, contents *py.Dict, depth int) {
	checkTreeDepth(depth)
	leaf := true
	for name, v := range contents.All() {
		node, ok := v.(*py.Dict)
		if !ok {
			panic(py.Raise("TypeError", "the entry '%s' of the scenario is a %s, not a dict", py.Str(name), py.TypeName(v)))
		}
		switch try(node.Index("type")) {
		case "directory":
			leaf = false
			sub := newDirectory(name, dir)
			l.fill(sub, nodeContents(node), depth+1)
			dir.Contents.Set(name, sub)
		case "file":
			content := try(node.Index("content"))
			if l.longContext && !l.tail[py.Str(name)] {
				content = try(py.Add(content, l.extension))
			}
			dir.Contents.Set(name, &File{Name: name, Content: content})
		}
	}
	if leaf && l.longContext {
		for _, name := range l.populate {
			dir.addFile(name, "")
		}
	}
}

func (g *gorillaFileSystem) State() []Attr {
	return []Attr{{"long_context", g.longContext}, {"root", g.root}}
}

// Hidden implements Hider: of the current directory and those above it, which may be above themselves, it returns those
// that their parents do not contain any more.
func (g *gorillaFileSystem) Hidden() (values []py.Value) {
	d := g.here
	for n := 0; d != nil && d != g.root && n < maxTreeDepth; n++ {
		if !d.inParent() {
			values = append(values, d)
		}
		d = d.Parent
	}
	return values
}

func (d *Directory) inParent() bool {
	if d.Parent == nil {
		return false
	}
	v, _ := d.Parent.Contents.Get(d.Name)
	return v == py.Value(d)
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
	m = cmp.Or(m, &py.Memo{})
	return &gorillaFileSystem{longContext: g.longContext, root: g.root.clone(m), here: g.here.clone(m)}
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

func (g *gorillaFileSystem) pwd() py.Value {
	return py.NewDict("current_working_directory", try(g.path()))
}

func (g *gorillaFileSystem) ls(all py.Value) py.Value {
	names := make([]py.Value, 0, g.here.Contents.Len())
	for name := range g.here.Contents.All() {
		if py.Truthy(all) || !strings.HasPrefix(receiver[string](name, "startswith"), ".") {
			names = append(names, name)
		}
	}
	return py.NewDict("current_directory_content", py.NewList(names...))
}

func (g *gorillaFileSystem) cd(v py.Value) py.Value {
	folder := cmp.Or(strings.TrimRight(receiver[string](v, "rstrip"), "/"), "/")
	if folder != "/" && strings.Contains(folder, "/") {
		return failure("cd: ", folder, ": Unsupported path. Only one folder level at a time is supported.")
	}
	if folder == ".." {
		if g.here.Parent != nil {
			g.here = g.here.Parent
			return py.NewDict()
		}
		if atRoot := try(g.root.equal(g.here, 0)); atRoot {
			return failure("Current directory is already the root. Cannot go back.")
		}
		return failure("cd: ..: No such directory")
	}
	target := g.navigate(folder)
	if target == nil {
		return navigationError("cd", folder)
	}
	g.here = target
	return py.NewDict("current_working_directory", target.Name)
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
		sub, ok := dir.get(name).(*Directory)
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
func badName(name py.Value) bool {
	if s, ok := name.(string); ok {
		return strings.ContainsAny(s, badNameRunes)
	}
	return strings.ContainsFunc(badNameRunes, func(c rune) bool { return try(py.Contains(name, string(c))) })
}

// entry returns the entry of the current directory with that name.
func (g *gorillaFileSystem) entry(name py.Value) (item py.Value, exists bool) {
	if _, exists = get(g.here.Contents, name); !exists {
		return nil, false
	}
	return g.here.get(name), true
}

// refuseNew returns the refusal of a name that no new entry can have, or None. It begins with prefix.
func (g *gorillaFileSystem) refuseNew(prefix string, name py.Value) py.Value {
	if badName(name) {
		return failure(prefix, " '", py.Str(name), "': Invalid character")
	}
	if _, exists := g.entry(name); exists {
		return failure(prefix, " '", py.Str(name), "': File exists")
	}
	return nil
}

func (g *gorillaFileSystem) mkdir(name py.Value) py.Value {
	if refusal := g.refuseNew("mkdir: cannot create directory", name); refusal != nil {
		return refusal
	}
	g.here.addDirectory(name)
	return nil
}

func (g *gorillaFileSystem) touch(name py.Value) py.Value {
	if refusal := g.refuseNew("touch: cannot touch", name); refusal != nil {
		return refusal
	}
	g.here.addFile(name, "")
	return nil
}

func (g *gorillaFileSystem) echo(content, name py.Value) py.Value {
	if name == nil {
		return py.NewDict("terminal_output", content)
	}
	if badName(name) {
		return failure("echo: cannot write to '", py.Str(name), "': Invalid character")
	}
	if !py.Truthy(name) {
		return py.NewDict("terminal_output", content)
	}
	item, exists := g.entry(name)
	if !exists {
		return failure("echo: cannot write to '", py.Str(name), "': No such file")
	}
	receiver[*File](item, "_write").Content = content
	return nil
}

func (g *gorillaFileSystem) cat(name py.Value) py.Value {
	if badName(name) {
		return failure("cat: '", py.Str(name), "': Invalid character")
	}
	item, exists := g.entry(name)
	if !exists {
		return failure("cat: '", py.Str(name), "': No such file or directory")
	}
	if f, ok := item.(*File); ok {
		return py.NewDict("file_content", f.Content)
	}
	return failure("cat: '", py.Str(name), "': Is a directory")
}

// file returns the file of that name, or nil for a directory or no entry.
func (g *gorillaFileSystem) file(name py.Value) *File {
	item, _ := g.entry(name)
	f, _ := item.(*File)
	return f
}

// text returns the content as the receiver of a method of strings.
func (f *File) text(method string) string { return receiver[string](f.Content, method) }

func (f *File) lines() []string { return py.SplitLines(f.text("splitlines")) }

// lines returns the lines of a file, or the reply of a tool that there is none.
func (g *gorillaFileSystem) lines(tool string, name py.Value) (lines []string, missing py.Value) {
	f := g.file(name)
	if f == nil {
		return nil, failure(tool, ": ", py.Str(name), ": No such file or directory")
	}
	return f.lines(), nil
}

func (g *gorillaFileSystem) find(path, name py.Value) py.Value {
	p, isText := path.(string)
	switch {
	case path == nil:
		panic(py.AttributeError(path, "rstrip"))
	case !isText:
		panic(py.AttributeError(path, "strip"))
	}
	start := g.navigate(p)
	if start == nil {
		return navigationError("find", p)
	}
	f := finder{name: name, matches: py.NewList(), left: MaxReply}
	f.walk(start, strings.TrimRight(p, "/"), 0)
	return py.NewDict("matches", f.matches)
}

// finder collects the paths of the entries below a directory whose names contain name; all paths if name is None.
type finder struct {
	name    py.Value
	matches *py.List
	left    int // bytes that further paths may have: deep directories with many files have far longer paths than names
}

// walk visits the entries below dir, whose path is prefix. It raises a MemoryError once all visited paths together have
// more than MaxReply bytes.
func (f *finder) walk(dir *Directory, prefix string, depth int) {
	checkTreeDepth(depth)
	for key, item := range dir.Contents.All() {
		path := prefix + "/" + py.Str(key)
		f.left -= len(path)
		if f.left < 0 {
			panic(py.Raise("MemoryError", "the paths take more than %d bytes", MaxReply))
		}
		if f.name == nil || try(py.Contains(key, f.name)) {
			f.matches.Append(path)
		}
		if sub, ok := item.(*Directory); ok {
			f.walk(sub, path, depth+1)
		}
	}
}

func (g *gorillaFileSystem) wc(name, mode py.Value) py.Value {
	m, _ := mode.(string)
	if m != "l" && m != "w" && m != "c" {
		return failure("wc: invalid mode '", py.Str(mode), "'")
	}
	f := g.file(name)
	if f == nil {
		return failure("wc: ", py.Str(name), ": No such file or directory")
	}
	count, kind := 0, "characters"
	switch m {
	case "l":
		count, kind = len(f.lines()), "lines"
	case "w":
		count, kind = len(strings.FieldsFunc(f.text("split"), py.Space)), "words"
	default:
		count = try(py.Len(f.Content))
	}
	return py.NewDict("count", int64(count), "type", kind)
}

func (g *gorillaFileSystem) sort(name py.Value) py.Value {
	lines, missing := g.lines("sort", name)
	if missing != nil {
		return missing
	}
	sort.Strings(lines) // byte order of UTF-8 is code point order
	return py.NewDict("sorted_content", strings.Join(lines, "\n"))
}

func (g *gorillaFileSystem) grep(name, pattern py.Value) py.Value {
	lines, missing := g.lines("grep", name)
	if missing != nil {
		return missing
	}
	found := py.NewList()
	for _, line := range lines {
		if try(py.Contains(line, pattern)) {
			found.Append(line)
		}
	}
	return py.NewDict("matching_lines", found)
}

func (g *gorillaFileSystem) tail(name, count py.Value) py.Value {
	lines, missing := g.lines("tail", name)
	if missing != nil {
		return missing
	}
	if try(py.Compare(">", count, int64(len(lines)))) {
		count = int64(len(lines))
	}
	if _, ok := count.(float64); ok {
		panic(py.Raise("TypeError", "slice indices must be integers or None or have an __index__ method"))
	}
	from := len(lines) // A count below -len(lines) selects no lines.
	if n, ok := try(py.Int(count)).(int64); ok && n > -int64(len(lines)) {
		from = int(-n)
		if from < 0 {
			from += len(lines)
		}
	}
	return py.NewDict("last_lines", strings.Join(lines[from:], "\n"))
}

func (g *gorillaFileSystem) diff(name1, name2 py.Value) py.Value {
	f1 := g.file(name1)
	missing := failure("diff: ", py.Str(name1), " or ", py.Str(name2), ": No such file or directory")
	if _, exists := g.entry(name1); !exists {
		return missing
	}
	f2 := g.file(name2)
	if f1 == nil || f2 == nil {
		return missing
	}
	lines1, lines2 := f1.lines(), f2.lines()
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
	return py.NewDict("diff_lines", b.String())
}

func (g *gorillaFileSystem) du(human py.Value) py.Value {
	total := size(g.here, 0)
	if !py.Truthy(human) {
		return py.NewDict("disk_usage", py.Str(total)+" bytes")
	}
	amount := float64(total)
	for _, unit := range []string{"B", "KB", "MB", "GB", "TB"} {
		if amount < 1024 {
			return py.NewDict("disk_usage", py.Fixed(amount, 2)+" "+unit)
		}
		amount /= 1024
	}
	return py.NewDict("disk_usage", py.Fixed(amount, 2)+" PB")
}

// size returns the number of UTF-8 bytes of all file contents below an item.
func size(item py.Value, depth int) int64 {
	checkTreeDepth(depth)
	switch item := item.(type) {
	case *File:
		return int64(len(item.text("encode")))
	case *Directory:
		var total int64
		for _, child := range item.Contents.All() {
			total += size(child, depth+1)
		}
		return total
	}
	return 0
}

func (g *gorillaFileSystem) rm(name py.Value) py.Value {
	if _, exists := g.entry(name); !exists {
		return failure("rm: cannot remove '", py.Str(name), "': No such file or directory")
	}
	g.here.Contents.Delete(name)
	return py.NewDict("result", "'"+py.Str(name)+"' removed")
}

func (g *gorillaFileSystem) rmdir(name py.Value) py.Value {
	item, exists := g.entry(name)
	dir, ok := item.(*Directory)
	switch {
	case !exists:
		return failure("rmdir: cannot remove '", py.Str(name), "': No such file or directory")
	case !ok:
		return failure("rmdir: cannot remove '", py.Str(name), "': Not a directory")
	case dir.Contents.Len() > 0:
		return failure("rmdir: cannot remove '", py.Str(name), "': Directory not empty")
	}
	g.here.Contents.Delete(name)
	return py.NewDict("result", "'"+py.Str(name)+"' removed")
}

func (g *gorillaFileSystem) mv(source, destination py.Value) py.Value {
	return g.transfer("mv", "move", "moved", source, destination)
}

func (g *gorillaFileSystem) cp(source, destination py.Value) py.Value {
	return g.transfer("cp", "copy", "copied", source, destination)
}

// transfer implements mv and cp, which have identical checks in identical order: into a directory of the current
// directory, or to a new name. verb and done are the words for the tool in its replies.
func (g *gorillaFileSystem) transfer(tool, verb, done string, source, destination py.Value) py.Value {
	item, exists := g.entry(source)
	from := py.Str(source)
	if !exists {
		return failure(tool, ": cannot ", verb, " '", from, "': No such file or directory")
	}
	if try(py.Contains(destination, "/")) {
		return failure(tool, ": path not allowed in destination. Provide only a file or directory name.")
	}
	at, taken := g.entry(destination)
	to := py.Str(destination)
	target, name := g.here, destination // directory and name of the item afterwards
	if taken {
		dir, ok := at.(*Directory)
		if !ok {
			return failure(tool, ": cannot ", verb, " '", from, "' to '", to, "': Not a directory")
		}
		key := to + "/" + from // cp looks up this key, which no directory has
		if tool == "mv" {
			key = from
		}
		if dir.Contents.Has(key) {
			return failure(tool, ": cannot ", verb, " '", from, "' to '", to, "/", from, "': File exists")
		}
		target, name, to = dir, source, to+"/"+from
	}
	if tool == "mv" {
		g.here.Contents.Delete(source)
	}
	place(target, name, item, tool == "cp")
	return py.NewDict("result", "'"+from+"' "+done+" to '"+to+"'")
}

// place adds an item under a name: a file as a new file; a directory as a new directory with the
// original's table or, for a copy, with a new table of the same objects.
func place(target *Directory, name, item py.Value, copied bool) {
	switch item := item.(type) {
	case *File:
		target.addFile(name, item.Content)
	case *Directory:
		dir := target.addDirectory(name)
		dir.Contents = item.Contents
		if copied {
			dir.Contents = item.Contents.ShallowCopy() // after the addition: a copy into itself contains itself
		}
	}
}
