package api

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// smallLong returns small long-context constants.
func smallLong(t testing.TB) map[string]py.Value {
	t.Helper()
	constants := constantsOf(t, []byte(`{
		"MA_5_EXTENSION": [1.5, 2.0], "MA_20_EXTENSION": [3.0],
		"TECHNOLOGY_EXTENSION": ["T1"], "AUTOMOBILE_EXTENSION": [], "WATCH_LIST_EXTENSION": ["W1", "it's"],
		"TRANSACTION_HISTORY_EXTENSION": [{"type": "deposit", "amount": 1.0, "timestamp": "2024-05-01 22:14:05.858817"}],
		"ORDER_DETAIL_EXTENSION": {"a": "{symbol} is {symbol}", "b": "plain \u00e9"},
		"CREDIT_CARD_EXTENSION": {"c1": {"balance": 10.0}, "c2": {"balance": 500}},
		"BOOKING_RECORD_EXTENSION": {"b1": {"card_id": "c1", "travel_cost": 4.5}},
		"CAR_STATUS_METADATA_EXTENSION": "about \"the\" car", "PARKING_BRAKE_INSTRUCTION": "pull\n",
		"INTERMEDIARY_CITIES": ["X", "Y"], "LONG_WEATHER_EXTENSION": {"-1_day": {"humidity": 75.0}}}`))
	constants["WATCH_LIST_EXTENSION"].(*py.List).Append(py.Ellipsis)
	return constants
}

func constantsOf(t testing.TB, raw []byte) map[string]py.Value {
	v := must.Get(py.FromJSON(raw))(t)
	constants := make(map[string]py.Value)
	for k, v := range v.(*py.Dict).All() {
		constants[k.(string)] = v
	}
	return constants
}

// longClasses are the classes whose replies contain long-context constants.
var longClasses = []string{"TradingBot", "TravelAPI", "VehicleControlAPI"}

func TestLongContextNeedsItsConstants(t *testing.T) {
	for _, name := range longClasses {
		c, _ := Lookup(name)
		if err := c.New().Load(nil, NewShared(nil, time.Time{}), true); err == nil {
			t.Errorf("%s: loaded without constants, want an error", name)
		}
	}
}

// The tables of this package duplicate constants of the official code, which a fixture contains.
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
	must.OK(t, json.Unmarshal(raw, &tables))
	car := start(t, "VehicleControlAPI", "", nil)
	for city, code := range tables.Vehicle.Zipcodes {
		car.want("get_zipcode_based_on_city("+py.Repr(city)+")", `{"zipcode": "`+code+`"}`)
	}
	for _, d := range tables.Vehicle.Distances {
		want := `{"distance": ` + py.FormatFloat(d[2].(float64)) + `}`
		car.want(fmt.Sprintf("estimate_distance(%q, %q)", d[0], d[1]), want)
		car.want(fmt.Sprintf("estimate_distance(%q, %q)", d[1], d[0]), want)
	}
	travel := start(t, "TravelAPI", "", nil)
	for i, f := range tables.Travel.Flights {
		if i >= len(flights) || flights[i].from != f[0] || flights[i].to != f[1] || float64(flights[i].base) != f[2] {
			t.Errorf("flight %d is not %v", i, f)
		}
	}
	for _, r := range tables.Travel.Rates {
		want := `{"exchanged_value": ` + py.FormatFloat(1000*r[2].(float64)) + `}`
		travel.want(fmt.Sprintf("compute_exchange_rate('USD', %q, 1000)", r[1]), want)
	}
	airports := py.NewList()
	for _, code := range tables.Travel.Airports {
		airports.Append(code)
	}
	travel.want("list_all_airports()", py.Repr(airports))
	for city, code := range tables.Travel.Nearest {
		travel.want("get_nearest_airport_by_city("+py.Repr(city)+")", `{"nearest_airport": "`+code+`"}`)
	}
	trading := start(t, "TradingBot", "", nil)
	for name, symbol := range tables.Trading.Symbols {
		trading.want("get_symbol_by_name("+py.Repr(name)+")", `{"symbol": "`+symbol+`"}`)
	}
	for sector, stocks := range tables.Trading.Sector {
		v := must.Get(py.FromJSON(stocks))(t)
		trading.want(fmt.Sprintf("get_available_stocks(%q)", sector), resultOf(py.NewDict("stock_list", v), nil))
	}
	if len(tables.Vehicle.Distances) != len(distances) || len(tables.Travel.Flights) != len(flights) ||
		len(tables.Vehicle.Zipcodes) != len(zipcodes) || len(tables.Travel.Nearest) != len(nearestAirports) ||
		len(tables.Trading.Symbols) != len(stockSymbols) || len(tables.Travel.Rates) != len(exchangeRates) {
		t.Error("a table here has other entries than upstream's")
	}
	for _, p := range []*play{car, travel, trading} {
		sameDefaults(t, p, tables.Default[p.class.Name])
	}
}

// sameDefaults compares the state of an instance without a scenario with the official default.
func sameDefaults(t *testing.T, p *play, raw json.RawMessage) {
	t.Helper()
	v := must.Get(py.FromJSON(raw))(t)
	defaults := v.(*py.Dict)
	for _, a := range append(p.it.State(), p.it.Private()...) {
		want, ok := defaults.Get(a.Name)
		if !ok {
			continue // long_context, and names without a default
		}
		if d, ok := want.(*py.Dict); ok && d.Has("$dict") {
			pairs, _ := d.Get("$dict")
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
