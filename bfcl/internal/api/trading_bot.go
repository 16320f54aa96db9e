package api

import "rcgrpo/bfcl/internal/py"

var tradingMethods = []Method{
	on1("add_to_watchlist", (*tradingBot).watch, Required("stock")),
	on1("cancel_order", (*tradingBot).cancel, Required("order_id")),
	on3("filter_stocks_by_price", (*tradingBot).filter,
		Required("stocks"), Required("min_price"), Required("max_price")),
	on1("fund_account", (*tradingBot).fund, Required("amount")),
	on0("get_account_info", (*tradingBot).info),
	on1("get_available_stocks", (*tradingBot).sector, Required("sector")),
	on0("get_current_time", (*tradingBot).now),
	on1("get_order_details", (*tradingBot).order, Required("order_id")),
	on0("get_order_history", (*tradingBot).listOrders),
	on1("get_stock_info", (*tradingBot).stock, Required("symbol")),
	on1("get_symbol_by_name", (*tradingBot).symbol, Required("name")),
	on2("get_transaction_history", (*tradingBot).history,
		Optional("start_date", nil), Optional("end_date", nil)),
	on0("get_watchlist", (*tradingBot).watched),
	on2("notify_price_change", (*tradingBot).notify, Required("stocks"), Required("threshold")),
	on4("place_order", (*tradingBot).place,
		Required("order_type"), Required("symbol"), Required("price"), Required("amount")),
	on1("remove_stock_from_watchlist", (*tradingBot).unwatch, Required("symbol")),
	on0("trading_get_login_status", (*tradingBot).status),
	on2("trading_login", (*tradingBot).login, Required("username"), Required("password")),
	on0("trading_logout", (*tradingBot).logout),
	on1("withdraw_funds", (*tradingBot).withdraw, Required("amount")),
}

const tradingSeed = 1053520

// tradingBot implements TradingBot (bfcl/SPEC.md 13.6).
type tradingBot struct {
	shared      *Shared // only its constants are used, so clones share it
	longContext bool
	random      *py.Random

	orders        *py.Dict // order id -> order; scenarios also contain strings
	account       py.Value
	authenticated py.Value
	market        py.Value // "Open" or "Closed"
	counter       py.Value // id of the next order
	stocks        py.Value
	watchList     py.Value
	transactions  py.Value
}

func newTradingBot() Instance { return &tradingBot{} }

// Load converts order keys of digits to integers.
func (b *tradingBot) Load(scenario *py.Dict, s *Shared, longContext bool) (err error) {
	defer catch(&err)
	b.shared, b.longContext = s, longContext
	if longContext {
		s.require("AUTOMOBILE_EXTENSION", "MA_20_EXTENSION", "MA_5_EXTENSION", "ORDER_DETAIL_EXTENSION",
			"TECHNOLOGY_EXTENSION", "TRANSACTION_HISTORY_EXTENSION", "WATCH_LIST_EXTENSION")
	}
	b.random = seeded(scenario, tradingSeed)
	b.orders = numberKeys(setting(scenario, "orders", defaultOrders()))
	b.stocks = setting(scenario, "stocks", defaultStocks())
	b.account = setting(scenario, "account_info", defaultAccount())
	b.authenticated = setting(scenario, "authenticated", false)
	b.market = setting(scenario, "market_status", "Closed")
	b.counter = setting(scenario, "order_counter", int64(12446))
	b.watchList = setting(scenario, "watch_list", py.NewList("NVDA"))
	b.transactions = setting(scenario, "transaction_history", py.NewList())
	return nil
}

// numberKeys returns a copy of orders whose keys of digits are integers.
func numberKeys(orders py.Value) *py.Dict {
	from := asDict(orders, "items")
	to := py.MakeDict(from.Len())
	for key, order := range from.All() {
		if text, ok := key.(string); ok && py.IsDigit(text) {
			key = try(py.Int(text))
		}
		to.Set(key, order)
	}
	return to
}

func (b *tradingBot) State() []Attr {
	return []Attr{{"orders", b.orders}, {"account_info", b.account}, {"authenticated", b.authenticated},
		{"market_status", b.market}, {"order_counter", b.counter}, {"stocks", b.stocks}, {"watch_list", b.watchList},
		{"transaction_history", b.transactions}, {"long_context", b.longContext}}
}

func (b *tradingBot) Private() []Attr { return nil }

func (b *tradingBot) Clone(m *py.Memo) Instance {
	return &tradingBot{shared: b.shared, longContext: b.longContext, random: b.random.Clone(), orders: b.orders.Clone(m),
		account: py.Clone(b.account, m), authenticated: py.Clone(b.authenticated, m), market: py.Clone(b.market, m),
		counter: py.Clone(b.counter, m), stocks: py.Clone(b.stocks, m), watchList: py.Clone(b.watchList, m),
		transactions: py.Clone(b.transactions, m)}
}
