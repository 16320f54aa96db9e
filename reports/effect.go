package reports

import (
	"rcgrpo/stages/rl/blocks"
)

// WithoutEffect names the settings that change nothing while the others are as they are.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	e.Add(len(s.Curves) == 0, "no curves are shown, so no updates are summarised", "windows.early", "windows.late")
	return e
}
