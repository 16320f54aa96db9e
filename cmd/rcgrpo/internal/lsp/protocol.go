package lsp

// The types of the Language Server Protocol 3.17 that this server uses, with the names of the specification.

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"` // UTF-16 units
}

type textRange struct {
	Start position `json:"start"`
	End   position `json:"end"`
}

type location struct {
	URI   string    `json:"uri"`
	Range textRange `json:"range"`
}

type textEdit struct {
	Range   textRange `json:"range"`
	NewText string    `json:"newText"`
}

// params are the parameters of all messages to the server; each uses some of the fields.
type params struct {
	TextDocument struct {
		URI     string `json:"uri"`
		Version int    `json:"version"`
		Text    string `json:"text"` // didOpen only
	} `json:"textDocument"`
	Position position `json:"position"`
	Changes  []struct {
		Range *textRange `json:"range"` // nil: the whole text
		Text  string     `json:"text"`
	} `json:"contentChanges"`
	Context struct {
		Diagnostics []diagnostic `json:"diagnostics"`
	} `json:"context"`
	RootURI      string `json:"rootUri"`
	Capabilities struct {
		TextDocument struct {
			Completion struct {
				Item struct {
					Snippets bool `json:"snippetSupport"`
				} `json:"completionItem"`
			} `json:"completion"`
		} `json:"textDocument"`
	} `json:"capabilities"`
}

type diagnostic struct {
	Range    textRange           `json:"range"`
	Severity int                 `json:"severity"` // 1 error, 2 warning
	Source   string              `json:"source"`
	Message  string              `json:"message"`
	Related  []relatedDiagnostic `json:"relatedInformation,omitempty"`
}

type relatedDiagnostic struct {
	Location location `json:"location"`
	Message  string   `json:"message"`
}

type publishParams struct {
	URI         string       `json:"uri"`
	Version     *int         `json:"version,omitempty"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

type codeAction struct {
	Title       string       `json:"title"`
	Kind        string       `json:"kind"`
	Diagnostics []diagnostic `json:"diagnostics"`
	Preferred   bool         `json:"isPreferred"`
	Edit        struct {
		Changes map[string][]textEdit `json:"changes"` // by URI
	} `json:"edit"`
}

type markup struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

func markdown(text string) *markup { return &markup{"markdown", text} }

type hover struct {
	Contents *markup   `json:"contents"`
	Range    textRange `json:"range"`
}

type completionList struct {
	Incomplete bool             `json:"isIncomplete"`
	Items      []completionItem `json:"items"`
}

type completionItem struct {
	Label      string   `json:"label"`
	Kind       int      `json:"kind"`
	Detail     string   `json:"detail,omitempty"`
	Doc        *markup  `json:"documentation,omitempty"`
	SortText   string   `json:"sortText"`
	FilterText string   `json:"filterText"`
	Format     int      `json:"insertTextFormat"` // 1 plain text, 2 snippet
	TextEdit   textEdit `json:"textEdit"`
}

// Kinds of completion items.
const (
	itemFunction = 3
	itemField    = 5
	itemVariable = 6
	itemModule   = 9
	itemValue    = 12
	itemKeyword  = 14
	itemRef      = 18
)
