package rl

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Where the reward token of an episode stands.
const (
	FirstUser        = "first_user"         // at the end of the first user message (paper, appendix)
	BeforeEachAction = "before_each_action" // right after the header of every reply (paper, section 3.1)
)

// InitCopy splits a row initialisation of the form "copy:TOKEN" and returns TOKEN.
func InitCopy(init string) (token string, ok bool) {
	token, ok = strings.CutPrefix(init, "copy:")
	return token, ok && token != ""
}

// CheckInit reports a row initialisation that is neither "mean" nor "copy:TOKEN".
func CheckInit(init string, at hcl.Range) hcl.Diagnostics {
	if _, ok := InitCopy(init); ok || init == "mean" {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown initialisation of reward tokens",
		Detail:  fmt.Sprintf("Rows of new tokens start as the mean of all rows (\"mean\") or as a copy of one token's row (\"copy:<|assistant|>\"); got %q.", init),
		Subject: at.Ptr()}}
}
