package api

import (
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl/internal/py"
)

// files loads a file system from the contents of its root "ws".
func files(t *testing.T, contents string) *gorillaFileSystem {
	t.Helper()
	v, err := py.FromJSON([]byte(`{"root": {"ws": {"type": "directory", "contents": ` + contents + `}}}`))
	if err != nil {
		t.Fatal(err)
	}
	g := &gorillaFileSystem{}
	if err := g.Load(v.(*py.Dict), NewShared(nil, time.Time{}), false); err != nil {
		t.Fatal(err)
	}
	return g
}

// gfs calls a tool by name and gives the result string; an exception as "!Class: text".
func (g *gorillaFileSystem) do(t *testing.T, name string, args ...py.Value) string {
	t.Helper()
	for i, m := range gorillaFileSystemMethods {
		if m.Name != name {
			continue
		}
		for len(args) < len(m.Params) {
			args = append(args, m.Params[len(args)].Default)
		}
		v, err := g.Call(i, args)
		if err != nil {
			return "!" + err.Error()
		}
		return py.Result(v)
	}
	t.Fatalf("no tool %q", name)
	return ""
}

const someFiles = `{"a": {"type": "directory", "contents": {"f.txt": {"type": "file", "content": "one\ntwo"}}}, "x.txt": {"type": "file", "content": "b\na\n"}, ".h": {"type": "file", "content": ""}}`

// Each row is a sequence of calls on someFiles, its last result is wanted.
func TestFileSystemRules(t *testing.T) {
	type call []py.Value
	for name, tc := range map[string]struct {
		calls []call
		want  string
	}{
		"path begins with the root's name":      {[]call{{"cd", "a"}, {"pwd"}}, `{"current_working_directory": "/ws/a"}`},
		"hidden names show on request":          {[]call{{"ls", true}}, `{"current_directory_content": ["a", "x.txt", ".h"]}`},
		"up from below gives an empty reply":    {[]call{{"cd", "a"}, {"cd", ".."}}, `{}`},
		"up from the root":                      {[]call{{"cd", ".."}}, `{"error": "Current directory is already the root. Cannot go back."}`},
		"one folder at a time":                  {[]call{{"cd", "a/b/"}}, `{"error": "cd: a/b: Unsupported path. Only one folder level at a time is supported."}`},
		"echo does not create":                  {[]call{{"echo", "x", "new"}}, `{"error": "echo: cannot write to 'new': No such file"}`},
		"echo into a directory":                 {[]call{{"echo", "x", "a"}}, `!AttributeError: 'Directory' object has no attribute '_write'`},
		"echo to an empty name prints":          {[]call{{"echo", "x", ""}}, `{"terminal_output": "x"}`},
		"a file may hold a number":              {[]call{{"echo", int64(5), "x.txt"}, {"sort", "x.txt"}}, `!AttributeError: 'int' object has no attribute 'splitlines'`},
		"words":                                 {[]call{{"wc", "x.txt", "w"}}, `{"count": 2, "type": "words"}`},
		"characters":                            {[]call{{"wc", "x.txt", "c"}}, `{"count": 4, "type": "characters"}`},
		"unknown mode":                          {[]call{{"wc", "x.txt", "q"}}, `{"error": "wc: invalid mode 'q'"}`},
		"no lines of zero are all lines":        {[]call{{"tail", "x.txt", int64(0)}}, `{"last_lines": "b\na"}`},
		"negative count drops from the front":   {[]call{{"tail", "x.txt", int64(-1)}}, `{"last_lines": "a"}`},
		"negative count beyond":                 {[]call{{"tail", "x.txt", int64(-9)}}, `{"last_lines": ""}`},
		"true is one":                           {[]call{{"tail", "x.txt", true}}, `{"last_lines": "a"}`},
		"a float is no slice":                   {[]call{{"tail", "x.txt", 1.0}}, `!TypeError: slice indices must be integers or None or have an __index__ method`},
		"bytes of all files":                    {[]call{{"echo", "é", "x.txt"}, {"du"}}, `{"disk_usage": "9 bytes"}`},
		"bytes for people":                      {[]call{{"du", true}}, `{"disk_usage": "11.00 B"}`},
		"find takes hidden files too":           {[]call{{"find", ".", "h"}}, `{"matches": ["./.h"]}`},
		"find from the root":                    {[]call{{"find", "/a"}}, `{"matches": ["/a/f.txt"]}`},
		"find without a place":                  {[]call{{"find", "b"}}, `{"error": "find: 'b': No such file or directory"}`},
		"a name that cannot be a key":           {[]call{{"mkdir", py.NewList("p")}}, `!TypeError: unhashable type: 'list'`},
		"a name that cannot be searched":        {[]call{{"touch", int64(3)}}, `!TypeError: argument of type 'int' is not iterable`},
		"bad character":                         {[]call{{"mkdir", "a|b"}}, `{"error": "mkdir: cannot create directory 'a|b': Invalid character"}`},
		"a moved file goes to the end":          {[]call{{"mv", "a", "z"}, {"ls"}}, `{"current_directory_content": ["x.txt", "z"]}`},
		"a directory moved onto itself is gone": {[]call{{"mv", "a", "a"}, {"ls"}}, `{"current_directory_content": ["x.txt"]}`},
		"second copy into a directory":          {[]call{{"cp", "x.txt", "a"}, {"cp", "x.txt", "a"}}, `!ValueError: File 'x.txt' already exists in directory 'a'.`},
		"a copied directory shares its files":   {[]call{{"cp", "a", "b"}, {"cd", "b"}, {"echo", "new", "f.txt"}, {"cd", ".."}, {"cd", "a"}, {"cat", "f.txt"}}, `{"file_content": "new"}`},
		"but not its table":                     {[]call{{"cp", "a", "b"}, {"cd", "b"}, {"rm", "f.txt"}, {"cd", ".."}, {"find", "a"}}, `{"matches": ["a/f.txt"]}`},
		"rmdir of a full directory":             {[]call{{"rmdir", "a"}}, `{"error": "rmdir: cannot remove 'a': Directory not empty"}`},
		"a directory inside itself":             {[]call{{"cp", "a", "a"}, {"du"}}, `!RecursionError: maximum recursion depth exceeded in comparison`},
		"lines that differ":                     {[]call{{"cp", "x.txt", "y"}, {"echo", "b\nc\nd", "y"}, {"diff", "x.txt", "y"}}, `{"diff_lines": "- a\n+ c"}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := files(t, someFiles)
			got := ""
			for _, c := range tc.calls {
				got = g.do(t, c[0].(string), c[1:]...)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A child of a moved directory still has the old one as parent: going up leads to where the directory was.
func TestMovedDirectoriesKeepStaleParents(t *testing.T) {
	g := files(t, `{"old": {"type": "directory", "contents": {"sub": {"type": "directory", "contents": {}}}}}`)
	for _, c := range [][]py.Value{{"mv", "old", "new"}, {"cd", "new"}, {"cd", "sub"}, {"cd", ".."}} {
		g.do(t, c[0].(string), c[1:]...)
	}
	if got := g.do(t, "pwd"); got != `{"current_working_directory": "/ws/old"}` {
		t.Errorf("got %s, want the old name", got)
	}
	g.do(t, "touch", "late")
	c := g.Clone(&py.Memo{}).(*gorillaFileSystem)
	c.do(t, "touch", "only in the clone")
	for name, want := range map[*gorillaFileSystem]string{g: `["new/sub", "new/late"]`, c: `["new/sub", "new/late", "new/only in the clone"]`} {
		name.here = name.root
		if got := name.do(t, "find", "new"); got != `{"matches": `+want+`}` {
			t.Errorf("got %s, want %s: the moved directory shares its table with the old one", got, want)
		}
	}
}

func TestLongContextFillsLeavesAndLengthensFiles(t *testing.T) {
	v, err := py.FromJSON([]byte(`{"root": {"ws": {"type": "directory", "contents": {"a": {"type": "directory", "contents": {"log.txt": {"type": "file", "content": "x"}, "b.txt": {"type": "file", "content": "y"}}}, "c.txt": {"type": "file", "content": "z"}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	long := map[string]py.Value{"FILE_CONTENT_EXTENSION": "+", "FILES_TAIL_USED": py.NewList("log.txt"), "POPULATE_FILE_EXTENSION": py.NewList("i.jpg")}
	g := &gorillaFileSystem{}
	if err := g.Load(v.(*py.Dict), NewShared(long, time.Time{}), true); err != nil {
		t.Fatal(err)
	}
	if got := g.do(t, "cat", "c.txt"); got != `{"file_content": "z+"}` {
		t.Errorf("got %s", got)
	}
	g.do(t, "cd", "a")
	if got := g.do(t, "ls"); got != `{"current_directory_content": ["log.txt", "b.txt", "i.jpg"]}` {
		t.Errorf("got %s", got)
	}
	if got := g.do(t, "cat", "log.txt") + g.do(t, "cat", "b.txt"); got != `{"file_content": "x"}{"file_content": "y+"}` {
		t.Errorf("got %s", got)
	}
	if err := g.Load(v.(*py.Dict), NewShared(nil, time.Time{}), true); err == nil || !strings.Contains(err.Error(), "long-context constant") {
		t.Errorf("without constants: got %v", err)
	}
}

func TestDirectoriesCompareByContentNotOrderOrPlace(t *testing.T) {
	a := files(t, `{"p": {"type": "file", "content": "1"}, "q": {"type": "directory", "contents": {}}}`)
	b := files(t, `{"q": {"type": "directory", "contents": {}}, "p": {"type": "file", "content": "1"}}`)
	b.do(t, "cd", "q")
	if !py.Equal(a.root, b.root) {
		t.Error("equal trees in another order, seen from another place, count as different")
	}
	b.do(t, "touch", "r")
	if py.Equal(a.root, b.root) {
		t.Error("different trees count as equal")
	}
}
