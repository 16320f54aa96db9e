package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl/internal/py"
)

// smallLong is a long context of the classes here, small enough to read.
func smallLong(t testing.TB) map[string]py.Value {
	t.Helper()
	v, err := py.FromJSON([]byte(`{
		"MA_5_EXTENSION": [1.5, 2.0], "MA_20_EXTENSION": [3.0],
		"TECHNOLOGY_EXTENSION": ["T1"], "AUTOMOBILE_EXTENSION": [], "WATCH_LIST_EXTENSION": ["W1", "it's"],
		"TRANSACTION_HISTORY_EXTENSION": [{"type": "deposit", "amount": 1.0, "timestamp": "2024-05-01 22:14:05.858817"}],
		"ORDER_DETAIL_EXTENSION": {"a": "{symbol} is {symbol}", "b": "plain \u00e9"},
		"CREDIT_CARD_EXTENSION": {"c1": {"balance": 10.0}, "c2": {"balance": 500}},
		"BOOKING_RECORD_EXTENSION": {"b1": {"card_id": "c1", "travel_cost": 4.5}},
		"CAR_STATUS_METADATA_EXTENSION": "about \"the\" car", "PARKING_BRAKE_INSTRUCTION": "pull\n",
		"INTERMEDIARY_CITIES": ["X", "Y"], "LONG_WEATHER_EXTENSION": {"-1_day": {"humidity": 75.0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	constants := make(map[string]py.Value)
	v.(*py.Dict).Each(func(k, v py.Value) bool {
		constants[k.(string)] = v
		return true
	})
	constants["WATCH_LIST_EXTENSION"].(*py.List).Append(py.Ellipsis)
	return constants
}

// startLong is start in long context.
func startLong(t testing.TB, class, scenario string, constants map[string]py.Value) *play {
	t.Helper()
	c, ok := Lookup(class)
	if !ok {
		t.Fatalf("there is no class %s", class)
	}
	var s *py.Dict
	if scenario != "" {
		v, err := py.FromJSON([]byte(scenario))
		if err != nil {
			t.Fatal(err)
		}
		s = v.(*py.Dict)
	}
	it := c.New()
	if err := it.Load(s, NewShared(constants, time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC)), true); err != nil {
		t.Fatal(err)
	}
	tt, _ := t.(*testing.T)
	return &play{tt, c, it}
}

// longClasses are the classes that put long-context constants into replies.
var longClasses = []string{"TradingBot", "TravelAPI", "VehicleControlAPI"}

func TestPreparedConstantsChangeNoReply(t *testing.T) {
	raw, prepared := smallLong(t), smallLong(t)
	PrepareLong(prepared)
	PrepareLong(prepared) // twice is as good as once
	for i, name := range longClasses {
		t.Run(name, func(t *testing.T) {
			one, two := startLong(t, name, "", raw), startLong(t, name, "", prepared)
			values := []py.Value{"2024-09-01", "SFO", "LAX", "economy", "Technology", "Automobile", "AAPL", int64(12345), int64(1),
				"fuel", "engage", "94016", "83214", true, nil, "251675", "c1", "b1"}
			for round := range 200 {
				pick := func(seed int64) func(int) int {
					rng := py.NewRandom(seed)
					return func(n int) int { return int(rng.RandInt(0, int64(n-1))) }
				}
				var a, b []string
				record := func(texts *[]string) func(py.Value, error) {
					return func(v py.Value, err error) {
						if err != nil {
							*texts = append(*texts, err.Error())
							return
						}
						*texts = append(*texts, py.Result(v), py.Repr(py.Thaw(v)))
					}
				}
				seed := int64(1000*i + round)
				callWith(one.it, one.class, values, pick(seed), record(&a))
				callWith(two.it, two.class, values, pick(seed), record(&b))
				for j := range a {
					if a[j] != b[j] {
						t.Fatalf("round %d: got %s with prepared constants, want %s", round, b[j], a[j])
					}
				}
				if one.state() != two.state() {
					t.Fatalf("round %d: states differ:\n%s\n%s", round, two.state(), one.state())
				}
			}
		})
	}
}

func TestLongContextNeedsItsConstants(t *testing.T) {
	for _, name := range longClasses {
		c, _ := Lookup(name)
		if err := c.New().Load(nil, NewShared(nil, time.Time{}), true); err == nil {
			t.Errorf("%s: loaded without constants, want an error", name)
		}
	}
}

func TestLongContextClonesGoTheirOwnWay(t *testing.T) {
	constants := smallLong(t)
	PrepareLong(constants)
	for _, name := range longClasses {
		p := startLong(t, name, "", constants)
		rng := py.NewRandom(3)
		pick := func(n int) int { return int(rng.RandInt(0, int64(n-1))) }
		values := []py.Value{"SFO", "LAX", "economy", "AAPL", int64(1), true, "c1", "b1", "driver", py.NewList("driver")}
		for range 50 {
			copied := p.it.Clone(&py.Memo{})
			before := stateText(copied)
			callWith(p.it, p.class, values, pick, func(v py.Value, _ error) { _ = py.Thaw(v) })
			if after := stateText(copied); after != before {
				t.Fatalf("%s: calls changed the clone from\n%s\nto\n%s", name, before, after)
			}
		}
	}
}

func FuzzLongContextCalls(f *testing.F) {
	constants := smallLong(f)
	PrepareLong(constants)
	f.Add(uint8(0), []byte("calls"))
	f.Add(uint8(1), []byte("\x00\x01\x02\xff"))
	f.Fuzz(func(t *testing.T, class uint8, picks []byte) {
		p := startLong(t, longClasses[int(class)%len(longClasses)], "", constants)
		for len(picks) > 0 {
			callWith(p.it, p.class, odd(), func(n int) int {
				if len(picks) == 0 {
					return n - 1
				}
				k := int(picks[0]) % n
				picks = picks[1:]
				return k
			}, func(v py.Value, err error) {
				if err != nil && py.AsException(err).Class == "RuntimeError" {
					t.Errorf("error %v is no Exception", err)
				}
				_ = py.Result(v)
			})
		}
	})
}

// The tables here repeat facts that upstream keeps in its code; the fixtures hold them exported.
func TestTablesAgreeWithUpstream(t *testing.T) {
	raw := fixtures.Read(t, "bfcl/data/class_tables.json")
	var tables struct {
		Vehicle struct {
			Zipcodes  map[string]string
			Distances [][]any `json:"distances_symmetric"`
		}
		Travel struct {
			Flights  [][]any           `json:"flight_base_cost_in_order"`
			Rates    [][]any           `json:"exchange_rates_in_order"`
			Airports []string          `json:"airports_in_order"`
			Nearest  map[string]string `json:"nearest_airport"`
		}
		Trading struct {
			Symbols map[string]string `json:"symbol_by_name"`
			Sector  map[string]json.RawMessage
		}
		Default map[string]json.RawMessage `json:"default_state"`
	}
	if err := json.Unmarshal(raw, &tables); err != nil {
		t.Fatal(err)
	}
	car := start(t, "VehicleControlAPI", "")
	for city, code := range tables.Vehicle.Zipcodes {
		car.want(`{"zipcode": "`+code+`"}`, "get_zipcode_based_on_city", city)
	}
	for _, d := range tables.Vehicle.Distances {
		want := `{"distance": ` + py.FormatFloat(d[2].(float64)) + `}`
		car.want(want, "estimate_distance", d[0], d[1])
		car.want(want, "estimate_distance", d[1], d[0])
	}
	travel := start(t, "TravelAPI", "")
	for i, f := range tables.Travel.Flights {
		if i >= len(flights) || flights[i].from != f[0] || flights[i].to != f[1] || float64(flights[i].base) != f[2] {
			t.Errorf("flight %d is not %v", i, f)
		}
	}
	for _, r := range tables.Travel.Rates {
		travel.want(`{"exchanged_value": `+py.FormatFloat(1000*r[2].(float64))+`}`, "compute_exchange_rate", "USD", r[1], int64(1000))
	}
	airports := py.NewList()
	for _, code := range tables.Travel.Airports {
		airports.Append(code)
	}
	travel.want(py.Repr(airports), "list_all_airports")
	for city, code := range tables.Travel.Nearest {
		travel.want(`{"nearest_airport": "`+code+`"}`, "get_nearest_airport_by_city", city)
	}
	trading := start(t, "TradingBot", "")
	for name, symbol := range tables.Trading.Symbols {
		trading.want(`{"symbol": "`+symbol+`"}`, "get_symbol_by_name", name)
	}
	for sector, stocks := range tables.Trading.Sector {
		v, err := py.FromJSON(stocks)
		if err != nil {
			t.Fatal(err)
		}
		trading.want(py.Result(py.NewDict("stock_list", v)), "get_available_stocks", sector)
	}
	if len(tables.Vehicle.Distances) != len(distances) || len(tables.Travel.Flights) != len(flights) ||
		len(tables.Vehicle.Zipcodes) != len(zipcodes()) || len(tables.Travel.Nearest) != len(nearestAirports()) ||
		len(tables.Trading.Symbols) != len(stockSymbols()) || len(tables.Travel.Rates) != len(exchangeRates) {
		t.Error("a table here has other entries than upstream's")
	}
	for _, p := range []*play{car, travel, trading} {
		sameDefaults(t, p, tables.Default[p.class.Name])
	}
}

// sameDefaults compares the state of an instance loaded without a scenario with upstream's default scenario.
func sameDefaults(t *testing.T, p *play, raw json.RawMessage) {
	t.Helper()
	v, err := py.FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	defaults := v.(*py.Dict)
	for _, a := range append(p.it.State(), p.it.Private()...) {
		want, ok := defaults.GetStr(a.Name)
		if !ok {
			continue // long_context, and names without a default
		}
		if d, ok := want.(*py.Dict); ok && d.HasStr("$dict") {
			pairs, _ := d.GetStr("$dict")
			d = py.NewDict()
			for _, pair := range pairs.(*py.List).Items {
				d.Set(pair.(*py.List).Items[0], pair.(*py.List).Items[1])
			}
			want = d
		}
		if py.Repr(a.Value) != py.Repr(want) {
			t.Errorf("%s.%s: got %s, want %s", p.class.Name, a.Name, py.Repr(a.Value), py.Repr(want))
		}
	}
}

func BenchmarkLongCalls(b *testing.B) {
	raw, err := os.ReadFile(filepath.Join(fixtures.Benchmark(b), "long_context.json"))
	if err != nil {
		b.Fatal(err)
	}
	v, err := py.FromJSON(raw)
	if err != nil {
		b.Fatal(err)
	}
	constants := make(map[string]py.Value)
	v.(*py.Dict).Each(func(k, v py.Value) bool {
		constants[k.(string)] = v
		return true
	})
	PrepareLong(constants)
	for _, bm := range []struct {
		class, scenario string
		method          int
		args            []py.Value
	}{
		{"TradingBot", "", tradingStock, []py.Value{"AAPL"}},
		{"TradingBot", "", tradingOrder, []py.Value{int64(12345)}},
		{"TradingBot", `{"authenticated": true}`, tradingWatchlist, nil},
		{"TradingBot", `{"authenticated": true}`, tradingTransactions, []py.Value{nil, nil}},
		{"TradingBot", "", tradingSector, []py.Value{"Technology"}},
		{"TravelAPI", "", travelCost, []py.Value{"SFO", "LAX", "2024-11-16", "first"}},
		{"TravelAPI", "", travelCards, nil},
		{"VehicleControlAPI", "", vehicleDistance, []py.Value{"94016", "83214"}},
		{"VehicleControlAPI", "", vehicleTirePressure, nil},
		{"VehicleControlAPI", "", vehicleGoogle, nil},
		{"VehicleControlAPI", "", vehiclePress, []py.Value{0.5}},
	} {
		p := startLong(b, bm.class, bm.scenario, constants)
		b.Run(bm.class+"/"+p.class.Methods[bm.method].Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, err := p.it.Call(bm.method, bm.args)
				if err != nil {
					b.Fatal(err)
				}
				_ = py.Result(v)
			}
		})
	}
	for _, name := range longClasses {
		p := startLong(b, name, "", constants)
		b.Run(name+"/Clone", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.it.Clone(nil)
			}
		})
	}
}
