package stages

import (
	"testing"

	"rcgrpo/engine"
)

func TestSettingsOfAllKindsAreWellFormed(t *testing.T) {
	for _, mistake := range engine.Registry(Kinds()).Check() {
		t.Error(mistake)
	}
}
