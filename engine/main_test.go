package engine_test

import (
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func init() {
	engine.Bridge.ToyKinds = enginetest.ToyKinds
	engine.Bridge.PaperKinds = enginetest.PaperKinds
	engine.Bridge.NewStore = enginetest.NewStore
	engine.Bridge.Make = func(t testing.TB, p *plan.Plan) []string { return enginetest.Make(t, p, enginetest.ByKey) }
	engine.Bridge.NewLab = func(t *testing.T) (engine.BridgeLab, string, string) {
		l := enginetest.NewLab(t)
		return l, l.Dir, l.StoreDir
	}
}
