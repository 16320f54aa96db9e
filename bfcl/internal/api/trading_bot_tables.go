package api

import "rcgrpo/bfcl/internal/py"

// defaultAccount and defaultOrders are the account and the orders of a scenario without them.
func defaultAccount() py.Value {
	return py.NewDict("account_id", int64(12345), "balance", 10000.0, "binding_card", int64(1974202140965533))
}

func defaultOrders() py.Value {
	return py.NewDict(
		int64(12345), py.NewDict("id", int64(12345), "order_type", "Buy", "symbol", "AAPL", "price", 210.65,
			"amount", int64(10), "status", "Completed"),
		int64(12446), py.NewDict("id", int64(12446), "order_type", "Sell", "symbol", "GOOG", "price", 2840.56,
			"amount", int64(5), "status", "Pending"),
	)
}

// defaultMarket contains the stocks of a scenario without stocks.
var defaultMarket = []struct {
	symbol                           string
	price, change, volume, ma5, ma20 float64
}{
	{"AAPL", 227.16, 0.17, 2.552, 227.11, 227.09},
	{"GOOG", 2840.34, 0.24, 1.123, 2835.67, 2842.15},
	{"TSLA", 667.92, -0.12, 1.654, 671.15, 668.2},
	{"MSFT", 310.23, 0.09, 3.234, 309.88, 310.11},
	{"NVDA", 220.34, 0.34, 1.234, 220.45, 220.67},
	{"ALPH", 1320.45, -0.08, 1.567, 1321.12, 1325.78},
	{"OMEG", 457.23, 0.12, 2.345, 456.78, 458.12},
	{"QUAS", 725.89, -0.03, 1.789, 726.45, 728.0},
	{"NEPT", 88.34, 0.19, 0.654, 88.21, 88.67},
	{"SYNX", 345.67, 0.11, 2.112, 345.34, 346.12},
	{"ZETA", 22.09, -0.05, 0.789, 22.12, 22.34},
}

func defaultStocks() py.Value {
	stocks := py.MakeDict(len(defaultMarket))
	for _, s := range defaultMarket {
		stocks.Set(s.symbol, py.NewDict("price", s.price, "percent_change", s.change, "volume", s.volume,
			"MA(5)", s.ma5, "MA(20)", s.ma20))
	}
	return stocks
}

// technologyStocks and automobileStocks are the sectors of get_available_stocks.
var (
	technologyStocks = []py.Value{"AAPL", "GOOG", "MSFT", "NVDA"}
	automobileStocks = []py.Value{"TSLA", "F", "GM"}
)

// stockSymbols maps the companies of get_symbol_by_name to their symbols.
var stockSymbols = map[string]string{
	"Apple":            "AAPL",
	"Google":           "GOOG",
	"Tesla":            "TSLA",
	"Microsoft":        "MSFT",
	"Nvidia":           "NVDA",
	"Zeta Corp":        "ZETA",
	"Alpha Tech":       "ALPH",
	"Omega Industries": "OMEG",
	"Quasar Ltd.":      "QUAS",
	"Neptune Systems":  "NEPT",
	"Synex Solutions":  "SYNX",
	"Amazon":           "AMZN",
	"Gorilla":          "GORI",
}
