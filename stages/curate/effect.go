package curate

import (
	"rcgrpo/stages/rl/blocks"
)

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	e.Add(len(s.Failures) == 0 && s.Spoilt == 0, "without failures, real or spoilt, there is no port mixed", "ratio")
	e.Add(len(s.Failures) > 0 && s.Ratio == 0, "ratio is 0, so there are no failures", "spoilt")
	return e
}
