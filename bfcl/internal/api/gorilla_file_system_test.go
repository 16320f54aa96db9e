package api

import (
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl/internal/py"
)

// files loads a file system from the contents of its root "ws".
func files(t *testing.T, contents string) (*play, *gorillaFileSystem) {
	t.Helper()
	p := start(t, "GorillaFileSystem", `{"root": {"ws": {"type": "directory", "contents": `+contents+`}}}`, nil)
	return p, p.it.(*gorillaFileSystem)
}

// A child of a moved directory keeps the original as its parent, so going up leads to the old name.
func TestMovedDirectoriesKeepStaleParents(t *testing.T) {
	p, g := files(t, `{"old": {"type": "directory", "contents": {"sub": {"type": "directory", "contents": {}}}}}`)
	for _, call := range []string{"mv('old', 'new')", "cd('new')", "cd('sub')", "cd('..')"} {
		p.call(call)
	}
	p.want("pwd()", `{"current_working_directory": "/ws/old"}`)
	p.call("touch('late')")
	c := g.Clone(&py.Memo{}).(*gorillaFileSystem)
	copied := &play{t, p.class, c}
	copied.call("touch('only in the clone')")
	g.here, c.here = g.root, c.root
	p.want("find('new')", `{"matches": ["new/sub", "new/late"]}`)
	copied.want("find('new')", `{"matches": ["new/sub", "new/late", "new/only in the clone"]}`)
}

func TestLongContextAddsFilesAndExtendsContents(t *testing.T) {
	const scenario = `{"root": {"ws": {"type": "directory", "contents": {
		"a": {"type": "directory", "contents": {
			"log.txt": {"type": "file", "content": "x"}, "b.txt": {"type": "file", "content": "y"}}},
		"c.txt": {"type": "file", "content": "z"}}}}}`
	p := start(t, "GorillaFileSystem", scenario, map[string]py.Value{"FILE_CONTENT_EXTENSION": "+",
		"FILES_TAIL_USED": py.NewList("log.txt"), "POPULATE_FILE_EXTENSION": py.NewList("i.jpg")})
	p.want("cat('c.txt')", `{"file_content": "z+"}`)
	p.call("cd('a')")
	p.want("ls()", `{"current_directory_content": ["log.txt", "b.txt", "i.jpg"]}`)
	p.want("cat('log.txt')", `{"file_content": "x"}`)
	p.want("cat('b.txt')", `{"file_content": "y+"}`)
	v, _ := py.FromJSON([]byte(scenario))
	err := p.it.Load(v.(*py.Dict), NewShared(nil, time.Time{}), true)
	if err == nil || !strings.Contains(err.Error(), "long-context constant") {
		t.Errorf("without constants: got %v", err)
	}
}

func TestDirectoriesCompareByContentNotOrderOrPlace(t *testing.T) {
	_, a := files(t, `{"p": {"type": "file", "content": "1"}, "q": {"type": "directory", "contents": {}}}`)
	p, b := files(t, `{"q": {"type": "directory", "contents": {}}, "p": {"type": "file", "content": "1"}}`)
	p.call("cd('q')")
	if !py.Equal(a.root, b.root) {
		t.Error("equal trees with another order and current directory are unequal")
	}
	p.call("touch('r')")
	if py.Equal(a.root, b.root) {
		t.Error("different trees are equal")
	}
}
