package lsp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
)

// Options configure a server.
type Options struct {
	Kinds  lang.Registry
	Source lang.Source // variables, site file and environment of all experiments; Path is not read
}

// server is one session with a client. The reading goroutine changes the documents, one goroutine loads experiments,
// and every request runs in its own goroutine on a view.
type server struct {
	Options
	to       *peer
	calls    calls
	root     string // folder of the workspace; ""
	snippets bool

	mu      sync.Mutex
	docs    map[string]*document   // open documents by path, or by URI if it names no file
	dirty   map[string]bool        // keys of docs whose experiment must be loaded
	wake    chan struct{}          // has an element if dirty is not empty
	busy    bool                   // some experiment is not loaded yet
	settled chan struct{}          // closed when every experiment is loaded
	loaded  map[string]*experiment // by key
}

// experiment is the last load of the experiment of a document.
type experiment struct {
	x        *lang.Experiment        // valid or not; nil for a site file
	reads    map[string]bool         // paths of its files
	diags    map[string][]diagnostic // by path
	found    map[string]stageInfo    // of the last valid one
	verdicts map[string]string
}

var errNoShutdown = errors.New("the client ended without the request shutdown")

// Serve answers the requests of one client until it sends exit or closes its stream.
func Serve(in io.Reader, out io.Writer, o Options) error {
	s := &server{Options: o, to: &peer{out: out}, calls: calls{cancel: map[string]context.CancelFunc{}},
		docs: map[string]*document{}, dirty: map[string]bool{}, wake: make(chan struct{}, 1),
		settled: make(chan struct{}), loaded: map[string]*experiment{}}
	close(s.settled)
	go s.load() // not awaited at the end: a load may read large files
	err := s.read(bufio.NewReader(in))
	close(s.wake)
	s.calls.stopAll()
	return err
}

// read handles messages. Its states are those of the protocol: before initialize, in use, after shutdown.
func (s *server) read(in *bufio.Reader) error {
	initialized, shutdown := false, false
	for {
		body, err := readMessage(in)
		switch {
		case errors.Is(err, io.EOF) && shutdown:
			return nil
		case errors.Is(err, io.EOF):
			return errNoShutdown
		case err != nil:
			return err
		}
		m, p, wrong := decode(body)
		refuse := func(code int, text string) { s.to.reply(m.ID, nil, &rpcError{code, text}) }
		switch {
		case m.Method == "exit" && shutdown:
			return nil
		case m.Method == "exit":
			return errNoShutdown
		case m.ID == nil && wrong == nil && initialized && !shutdown:
			s.notified(m.Method, p)
		case m.ID == nil: // a wrong or untimely notification
		case wrong != nil:
			s.to.reply(m.ID, nil, wrong)
		case shutdown:
			refuse(invalidRequest, "the server is shut down")
		case m.Method == "initialize" && !initialized:
			initialized = true
			s.to.reply(m.ID, s.initialize(p), nil)
		case m.Method == "initialize":
			refuse(invalidRequest, "the server is initialized already")
		case !initialized:
			refuse(notInitialized, "want initialize first")
		case m.Method == "shutdown":
			shutdown = true
			s.to.reply(m.ID, nil, nil)
		default:
			s.request(m, p)
		}
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
			"documentSymbolProvider":     true,
			"documentFormattingProvider": true,
			"codeActionProvider":         object{"codeActionKinds": []string{"quickfix"}},
			"codeLensProvider":           object{},
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
	case "$/cancelRequest":
		s.calls.stop(p.ID)
	}
}

// change replaces an open document; nil closes it. All experiments that read it are loaded again, and all experiments
// if key is "".
func (s *server) change(key string, edit func(*document) *document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	docs := maps.Clone(s.docs) // views keep the map before
	if d := edit(docs[key]); d != nil {
		docs[key] = d
	} else {
		delete(docs, key)
	}
	s.docs = docs
	if !s.busy {
		s.busy, s.settled = true, make(chan struct{})
	}
	s.dirty[key] = true
	for other, e := range s.loaded {
		if key == "" || e.reads[key] {
			s.dirty[other] = true
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// requests are the methods about a document that need nothing but a view.
var requests = map[string]func(v *view, p params) any{
	"textDocument/completion":     func(v *view, p params) any { return v.complete(p.Position) },
	"textDocument/hover":          func(v *view, p params) any { return v.hover(p.Position) },
	"textDocument/definition":     func(v *view, p params) any { return v.definitions(p.Position) },
	"textDocument/documentSymbol": func(v *view, p params) any { return v.doc.symbolsOf(v.doc.outline().root) },
	"textDocument/codeAction":     func(v *view, p params) any { return v.fixes(p.Context.Diagnostics) },
	"textDocument/formatting": func(v *view, p params) any {
		text, diags := lang.Format(v.doc.text, v.doc.path)
		if diags.HasErrors() {
			return nil
		}
		return v.doc.replacement(text)
	},
}

func (s *server) request(m message, p params) {
	handler := requests[m.Method]
	lens := m.Method == "textDocument/codeLens"
	v := s.view(keyOf(p.TextDocument.URI))
	switch {
	case handler == nil && !lens:
		s.to.reply(m.ID, nil, &rpcError{methodNotFound, "unknown method " + m.Method})
	case v == nil:
		s.to.reply(m.ID, nil, &rpcError{invalidParams, "the document is not open: " + p.TextDocument.URI})
	default:
		s.calls.start(s.to, m.ID, func(ctx context.Context) any {
			if lens {
				return v.lenses(s.verdicts(ctx, v.doc))
			}
			return handler(v, p)
		})
	}
}

// view returns what is known about an open document, or nil.
func (s *server) view(key string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.docs[key]
	if d == nil {
		return nil
	}
	docs := s.docs
	v := &view{doc: d, files: []*document{d}, site: s.isSite(d.path), kinds: s.Kinds, snippets: s.snippets}
	v.module = func(path string) (files []*document) {
		paths, _, _, err := lang.ExperimentFiles(path, nil)
		if err == nil {
			for _, p := range paths {
				files = append(files, open(docs, p))
			}
		}
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

// load loads the experiments of changed documents until wake is closed. Only this goroutine publishes.
func (s *server) load() {
	for range s.wake {
		s.mu.Lock()
		typing := false
		for key := range s.dirty {
			typing = typing || s.loaded[key] != nil
		}
		s.mu.Unlock()
		if typing {
			time.Sleep(pause)
		}
		for s.loadNext() {
		}
	}
}

// pause delays diagnostics after a change, so that a completion that the change causes has the CPU.
const pause = 50 * time.Millisecond

// loadNext loads one experiment. It returns false if all are loaded.
func (s *server) loadNext() bool {
	s.mu.Lock()
	keys := slices.Sorted(maps.Keys(s.dirty))
	if len(keys) == 0 {
		s.mu.Unlock()
		return false
	}
	key, docs := keys[0], s.docs
	delete(s.dirty, key)
	before := cmp.Or(s.loaded[key], &experiment{})
	s.mu.Unlock()

	now := &experiment{}
	if d := docs[key]; d != nil {
		now = s.loadDocument(key, d, docs, before)
	}

	s.mu.Lock()
	delete(s.loaded, key)
	if docs[key] != nil {
		s.loaded[key] = now
	}
	paths := map[string]bool{key: true}
	for path := range before.diags {
		paths[path] = true
	}
	for path := range now.diags {
		paths[path] = true
	}
	messages := []publishParams{}
	for path := range paths {
		messages = append(messages, s.diagnosticsOf(path, docs))
	}
	s.mu.Unlock()
	for _, m := range messages {
		s.to.notify("textDocument/publishDiagnostics", m)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) == 0 {
		s.busy = false
		close(s.settled)
	}
	return true
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
	e := &experiment{reads: map[string]bool{key: true}, found: before.found, verdicts: before.verdicts}
	texts := map[string][]byte{}
	for _, o := range docs {
		texts[o.path] = o.text
	}
	var diags hcl.Diagnostics
	main, dir := key, filepath.Dir(d.path)
	if info, err := os.Stat(d.path); err != nil || !info.Mode().IsRegular() {
		_, diags = lang.Format(d.text, key)
	} else {
		lang.WithBuffers(texts, func() {
			src := s.sourceOf(d.path)
			if s.isSite(d.path) {
				_, _, diags = lang.LoadSite(src)
				return
			}
			e.x, diags = lang.Load(src, s.Kinds)
		})
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
	for _, f := range e.x.Sources {
		e.reads[f.Path] = true
	}
	if e.x.Invalid {
		return
	}
	e.found = map[string]stageInfo{}
	for _, n := range e.x.Nodes {
		name := n.Kind.Name + "." + n.Name
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
func (s *server) sourceOf(path string) lang.Source {
	src := s.Source
	dir := filepath.Dir(path)
	if src.Path = path; s.isSite(path) {
		src.Site = path
		return src
	}
	if found, err := lang.FindExperiment(dir); err == nil && found == dir {
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

// verdicts returns the texts of lenses once all changes are loaded. Those of an experiment with errors are from before.
func (s *server) verdicts(ctx context.Context, d *document) map[string]string {
	s.mu.Lock()
	settled := s.settled
	s.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
		return nil
	}
	s.mu.Lock()
	e := s.loaded[keyOf(d.uri)]
	s.mu.Unlock()
	if e == nil || e.x == nil {
		return nil
	}
	var texts map[string]string
	if !e.x.Invalid {
		texts = planTexts(e.x)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if texts != nil {
		e.verdicts = texts
	}
	return e.verdicts
}
