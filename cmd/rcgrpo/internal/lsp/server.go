package lsp

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
)

// Options configure a server.
type Options struct {
	Kinds  lang.Registry
	Source lang.Source // variables, site file and environment of all experiments; Path is not read
}

// server is one session with a client. One goroutine executes the events and owns all fields. Others read messages
// and load experiments; they post their results as events.
type server struct {
	Options
	out    io.Writer
	events chan func()
	ended  chan struct{} // closed after the last event
	over   bool          // the last event was executed
	err    error         // result of the session

	initialized, shutdown bool
	root                  string // folder of the workspace; ""
	snippets              bool   // the client's completions may have placeholders

	docs    map[string]*document   // open documents by path, or by URI if it names no file; replaced, not changed
	dirty   map[string]bool        // keys of documents whose experiment must be loaded
	during  map[string]bool        // keys of documents that changed since the load in progress began
	loading bool                   // or waiting for the end of the typing
	loaded  map[string]*experiment // by key

	described map[string]lang.KindDoc // kinds, once a request needed them
}

// experiment is the last load of the experiment of a document.
type experiment struct {
	x     *lang.Experiment        // valid or not; nil for a site file
	reads map[string]bool         // paths of its files
	diags map[string][]diagnostic // by path
	found map[string]stageInfo    // of the last valid one
}

// pause delays diagnostics after a change, so that a completion that the change causes has the CPU.
const pause = 50 * time.Millisecond

var errNoShutdown = errors.New("the client ended without the request shutdown")

// Serve answers the requests of one client until it sends exit or closes its stream.
func Serve(in io.Reader, out io.Writer, o Options) error {
	s := &server{Options: o, out: out, events: make(chan func()), ended: make(chan struct{}), docs: map[string]*document{},
		dirty: map[string]bool{}, during: map[string]bool{}, loaded: map[string]*experiment{},
		described: map[string]lang.KindDoc{}}
	go s.read(bufio.NewReader(in))
	for !s.over {
		(<-s.events)()
		s.startLoad()
	}
	close(s.ended)
	return s.err
}

// post executes an event, unless the session has ended.
func (s *server) post(event func()) {
	select {
	case s.events <- event:
	case <-s.ended:
	}
}

func (s *server) end(err error) { s.over, s.err = true, err }

func (s *server) read(in *bufio.Reader) {
	for {
		body, err := readMessage(in)
		if err != nil {
			s.post(func() {
				switch {
				case errors.Is(err, io.EOF) && s.shutdown:
					err = nil
				case errors.Is(err, io.EOF):
					err = errNoShutdown
				}
				s.end(err)
			})
			return
		}
		m, p, wrong := decode(body)
		s.post(func() { s.receive(m, p, wrong) })
	}
}

// receive handles a message. Its states are those of the protocol: before initialize, in use, after shutdown.
func (s *server) receive(m message, p params, wrong *rpcError) {
	refuse := func(code int, text string) { s.reply(m.ID, nil, &rpcError{code, text}) }
	switch {
	case m.Method == "exit" && s.shutdown:
		s.end(nil)
	case m.Method == "exit":
		s.end(errNoShutdown)
	case m.ID == nil && wrong == nil && s.initialized && !s.shutdown:
		s.notified(m.Method, p)
	case m.ID == nil: // a wrong or untimely notification
	case wrong != nil:
		s.reply(m.ID, nil, wrong)
	case s.shutdown:
		refuse(invalidRequest, "the server is shut down")
	case m.Method == "initialize" && !s.initialized:
		s.initialized = true
		s.reply(m.ID, s.initialize(p), nil)
	case m.Method == "initialize":
		refuse(invalidRequest, "the server is initialized already")
	case !s.initialized:
		refuse(notInitialized, "want initialize first")
	case m.Method == "shutdown":
		s.shutdown = true
		s.reply(m.ID, nil, nil)
	case requests[m.Method] == nil:
		refuse(methodNotFound, "unknown method "+m.Method)
	case s.docs[keyOf(p.TextDocument.URI)] == nil:
		refuse(invalidParams, "the document is not open: "+p.TextDocument.URI)
	default:
		s.reply(m.ID, requests[m.Method](s.view(keyOf(p.TextDocument.URI)), p), nil)
	}
}

func (s *server) initialize(p params) any {
	s.root, s.snippets = pathOf(p.RootURI), p.Capabilities.TextDocument.Completion.Item.Snippets
	type object map[string]any
	return object{
		"serverInfo": object{"name": "rcgrpo"},
		"capabilities": object{
			"textDocumentSync":           object{"openClose": true, "change": 2, "save": object{}},
			"completionProvider":         object{"triggerCharacters": []string{".", `"`, "="}},
			"hoverProvider":              true,
			"definitionProvider":         true,
			"documentFormattingProvider": true,
			"codeActionProvider":         object{"codeActionKinds": []string{"quickfix"}},
		},
	}
}

func keyOf(uri string) string { return cmp.Or(pathOf(uri), uri) }

func (s *server) notified(method string, p params) {
	uri := p.TextDocument.URI
	switch method {
	case "textDocument/didOpen":
		s.change(keyOf(uri), func(*document) *document {
			return newDocument(uri, p.TextDocument.Version, []byte(p.TextDocument.Text))
		})
	case "textDocument/didChange":
		s.change(keyOf(uri), func(d *document) *document {
			if d == nil {
				return nil
			}
			return d.edited(p)
		})
	case "textDocument/didClose":
		s.change(keyOf(uri), func(*document) *document { return nil })
	case "textDocument/didSave", "workspace/didChangeWatchedFiles": // file() and dir() may have other content
		s.change("", func(*document) *document { return nil })
	}
}

// change replaces an open document; nil closes it. All experiments that read it are loaded again, and all experiments
// if key is "".
func (s *server) change(key string, edit func(*document) *document) {
	docs := maps.Clone(s.docs) // a load keeps the map before
	if d := edit(docs[key]); d != nil {
		docs[key] = d
	} else {
		delete(docs, key)
	}
	s.docs = docs
	s.dirty[key], s.during[key] = true, true
	for other, e := range s.loaded {
		if key == "" || e.reads[key] {
			s.dirty[other] = true
		}
	}
}

// requests are the methods about a document that need nothing but a view.
var requests = map[string]func(v *view, p params) any{
	"textDocument/completion": func(v *view, p params) any { return v.complete(p.Position) },
	"textDocument/hover":      func(v *view, p params) any { return v.hover(p.Position) },
	"textDocument/definition": func(v *view, p params) any { return v.definitions(p.Position) },
	"textDocument/codeAction": func(v *view, p params) any { return v.fixes(p.Context.Diagnostics) },
	"textDocument/formatting": func(v *view, p params) any {
		text, diags := lang.Format(v.doc.text, v.doc.path)
		if diags.HasErrors() {
			return nil
		}
		return v.doc.replacement(text)
	},
}

// maxModules is the size in bytes of the modules that one request reads.
const maxModules = 8 << 20

// view returns the text of an open document and the loaded files of its experiment.
func (s *server) view(key string) *view {
	d, docs := s.docs[key], s.docs
	v := &view{doc: d, files: []*document{d}, site: s.isSite(d.path), kinds: s.Kinds,
		described: s.described, snippets: s.snippets}
	modules, read := map[string][]*document{}, 0
	v.module = func(path string) []*document {
		if files, known := modules[path]; known || read > maxModules {
			return files
		}
		var files []*document
		paths, _, _, err := lang.ExperimentFiles(path, nil)
		if err == nil {
			for _, p := range paths {
				files = append(files, open(docs, p))
				read += len(files[len(files)-1].text)
			}
		}
		modules[path] = files
		return files
	}
	if e := s.loaded[key]; e != nil && e.x != nil {
		v.found = e.found
		for _, path := range e.x.Paths {
			if path != d.path {
				v.files = append(v.files, open(docs, path))
			}
		}
	}
	return v
}

// open returns an open document, else the file, else an empty document.
func open(docs map[string]*document, path string) *document {
	if d := docs[path]; d != nil {
		return d
	}
	text, _ := lang.ReadSource(path)
	return newDocument(uriOf(path), 0, text)
}

// startLoad loads the next changed document in the background, after a pause if it was loaded before.
func (s *server) startLoad() {
	if s.loading || len(s.dirty) == 0 {
		return
	}
	s.loading = true
	keys := slices.Sorted(maps.Keys(s.dirty))
	if slices.ContainsFunc(keys, func(key string) bool { return s.loaded[key] != nil }) {
		time.AfterFunc(pause, func() { s.post(func() { s.load(keys[0]) }) })
		return
	}
	s.load(keys[0])
}

func (s *server) load(key string) {
	delete(s.dirty, key)
	clear(s.during)
	docs, before := s.docs, cmp.Or(s.loaded[key], &experiment{})
	d := docs[key]
	if d == nil { // closed
		s.finishLoad(key, docs, before, &experiment{})
		return
	}
	go func() {
		now := s.loadDocument(key, d, docs, before)
		s.post(func() { s.finishLoad(key, docs, before, now) })
	}()
}

// finishLoad publishes the diagnostics of all files with diagnostics before or now.
func (s *server) finishLoad(key string, docs map[string]*document, before, now *experiment) {
	delete(s.loaded, key)
	if docs[key] != nil {
		s.loaded[key] = now
	}
	for changed := range s.during {
		if s.docs[key] != nil && (changed == "" || now.reads[changed]) {
			s.dirty[key] = true
		}
	}
	paths := map[string]bool{key: key != ""}
	for path := range before.diags {
		paths[path] = true
	}
	for path := range now.diags {
		paths[path] = true
	}
	for path, publish := range paths {
		if publish {
			s.send(message{Method: "textDocument/publishDiagnostics", Params: marshal(s.diagnosticsOf(path, docs))})
		}
	}
	s.loading = false
}

// diagnosticsOf returns the diagnostics of a file from all experiments that read it, each once.
func (s *server) diagnosticsOf(path string, docs map[string]*document) publishParams {
	p := publishParams{URI: uriOf(path), Diagnostics: []diagnostic{}}
	if d := docs[path]; d != nil {
		p.URI, p.Version = d.uri, &d.version
	}
	for _, key := range slices.Sorted(maps.Keys(s.loaded)) {
		for _, d := range s.loaded[key].diags[path] {
			same := func(o diagnostic) bool { return o.Message == d.Message && o.Range == d.Range }
			if !slices.ContainsFunc(p.Diagnostics, same) {
				p.Diagnostics = append(p.Diagnostics, d)
			}
		}
	}
	return p
}

// loadDocument loads the experiment or the site file of an open document. A document without a file, such as one that
// was never saved, gets the diagnostics of the parser only.
func (s *server) loadDocument(key string, d *document, docs map[string]*document, before *experiment) *experiment {
	e := &experiment{reads: map[string]bool{key: true}, found: before.found}
	texts := map[string][]byte{}
	for _, o := range docs {
		texts[o.path] = o.text
	}
	var diags hcl.Diagnostics
	main, dir := key, filepath.Dir(d.path)
	if info, err := os.Stat(d.path); err != nil || !info.Mode().IsRegular() {
		_, diags = lang.Format(d.text, key)
	} else {
		src := s.sourceOf(d.path, texts)
		if s.isSite(d.path) {
			_, _, diags = lang.LoadSite(src)
		} else {
			e.x, diags = lang.Load(src, s.Kinds)
		}
	}
	if e.x != nil {
		e.addExperiment()
	}
	files := map[string]*document{key: d}
	e.diags = convert(lang.DiagnosticsJSON(diags), main, dir, func(path string) *document {
		if files[path] == nil {
			files[path] = open(docs, path)
		}
		return files[path]
	})
	return e
}

// addExperiment derives what requests need from a loaded experiment.
func (e *experiment) addExperiment() {
	for _, path := range e.x.Reads {
		e.reads[path] = true
	}
	if e.x.Invalid {
		return
	}
	e.found = map[string]stageInfo{}
	for _, n := range e.x.Nodes {
		name := lang.StageName(n.Address)
		info := e.found[name]
		info.outputs = n.Outputs
		if n.EachKey != "" && !slices.Contains(info.keys, n.EachKey) {
			info.keys = append(info.keys, n.EachKey)
		}
		e.found[name] = info
	}
}

// sourceOf returns the source of the experiment that contains a file: its folder if that is one experiment of several
// files, else the file. The site file is that of the command line, else site.hcl in the same folder or the workspace.
// unsaved has the texts of the open documents.
func (s *server) sourceOf(path string, unsaved map[string][]byte) lang.Source {
	src := s.Source
	src.Unsaved, src.NoData = unsaved, true
	dir := filepath.Dir(path)
	src.Path = path
	if s.isSite(path) {
		src.Site = path
		return src
	}
	if found, err := lang.FindExperiment(dir, unsaved); err == nil && found == dir {
		src.Path = dir
	}
	for _, folder := range []string{dir, s.root} {
		site := filepath.Join(folder, "site.hcl")
		if _, err := os.Stat(site); err == nil && folder != "" && s.sitePath() == "" {
			src.Site = site
			break
		}
	}
	return src
}

func (s *server) sitePath() string {
	return cmp.Or(s.Source.Site, lang.EnvValue(s.Source.Env, "RCGRPO_SITE"))
}

func (s *server) isSite(path string) bool {
	named, err := filepath.Abs(s.sitePath())
	return filepath.Base(path) == "site.hcl" || s.sitePath() != "" && err == nil && named == path
}
