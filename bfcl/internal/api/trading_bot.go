package api

import "rcgrpo/bfcl/internal/py"

const (
	tradingWatch = iota
	tradingCancel
	tradingFilter
	tradingFund
	tradingAccount
	tradingSector
	tradingTime
	tradingOrder
	tradingOrders
	tradingStock
	tradingSymbol
	tradingTransactions
	tradingWatchlist
	tradingNotify
	tradingPlace
	tradingUnwatch
	tradingLoginStatus
	tradingLogin
	tradingLogout
	tradingWithdraw
)

var tradingMethods = []Method{
	tradingWatch:  {"add_to_watchlist", []Param{Required("stock")}},
	tradingCancel: {"cancel_order", []Param{Required("order_id")}},
	tradingFilter: {"filter_stocks_by_price",
		[]Param{Required("stocks"), Required("min_price"), Required("max_price")}},
	tradingFund:         {"fund_account", []Param{Required("amount")}},
	tradingAccount:      {"get_account_info", nil},
	tradingSector:       {"get_available_stocks", []Param{Required("sector")}},
	tradingTime:         {"get_current_time", nil},
	tradingOrder:        {"get_order_details", []Param{Required("order_id")}},
	tradingOrders:       {"get_order_history", nil},
	tradingStock:        {"get_stock_info", []Param{Required("symbol")}},
	tradingSymbol:       {"get_symbol_by_name", []Param{Required("name")}},
	tradingTransactions: {"get_transaction_history", []Param{Optional("start_date", nil), Optional("end_date", nil)}},
	tradingWatchlist:    {"get_watchlist", nil},
	tradingNotify:       {"notify_price_change", []Param{Required("stocks"), Required("threshold")}},
	tradingPlace: {"place_order", []Param{Required("order_type"), Required("symbol"),
		Required("price"), Required("amount")}},
	tradingUnwatch:     {"remove_stock_from_watchlist", []Param{Required("symbol")}},
	tradingLoginStatus: {"trading_get_login_status", nil},
	tradingLogin:       {"trading_login", []Param{Required("username"), Required("password")}},
	tradingLogout:      {"trading_logout", nil},
	tradingWithdraw:    {"withdraw_funds", []Param{Required("amount")}},
}

const tradingSeed = 1053520

// tradingBot implements TradingBot (bfcl/SPEC.md 13.6).
type tradingBot struct {
	shared *Shared // only its constants are used, so clones share it
	long   bool
	random *py.Random

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
func (b *tradingBot) Load(scenario *py.Dict, s *Shared, longContext bool) error {
	b.shared, b.long = s, longContext
	if longContext {
		if err := s.require("AUTOMOBILE_EXTENSION", "MA_20_EXTENSION", "MA_5_EXTENSION", "ORDER_DETAIL_EXTENSION",
			"TECHNOLOGY_EXTENSION", "TRANSACTION_HISTORY_EXTENSION", "WATCH_LIST_EXTENSION"); err != nil {
			return err
		}
	}
	var err error
	if b.random, err = seeded(scenario, tradingSeed); err != nil {
		return err
	}
	if b.orders, err = numberKeys(settingElse(scenario, "orders", defaultOrders)); err != nil {
		return err
	}
	b.stocks = settingElse(scenario, "stocks", defaultStocks)
	b.account = settingElse(scenario, "account_info", defaultAccount)
	b.authenticated = setting(scenario, "authenticated", false)
	b.market = setting(scenario, "market_status", "Closed")
	b.counter = setting(scenario, "order_counter", int64(12446))
	b.watchList = setting(scenario, "watch_list", py.NewList("NVDA"))
	b.transactions = setting(scenario, "transaction_history", py.NewList())
	return nil
}

// numberKeys returns a copy of orders whose keys of digits are integers.
func numberKeys(orders py.Value) (*py.Dict, error) {
	from, err := asDict(orders, "items")
	if err != nil {
		return nil, err
	}
	to := py.MakeDict(from.Len())
	for i := range from.Len() {
		key, order := from.At(i)
		if text, ok := key.(string); ok && py.IsDigit(text) {
			if key, err = py.Int(text); err != nil {
				return nil, err
			}
		}
		to.Set(key, order)
	}
	return to, nil
}

func (b *tradingBot) State() []Attr {
	return []Attr{{"orders", b.orders}, {"account_info", b.account}, {"authenticated", b.authenticated},
		{"market_status", b.market}, {"order_counter", b.counter}, {"stocks", b.stocks}, {"watch_list", b.watchList},
		{"transaction_history", b.transactions}, {"long_context", b.long}}
}

func (b *tradingBot) Private() []Attr { return nil }

func (b *tradingBot) Clone(m *py.Memo) Instance {
	return &tradingBot{shared: b.shared, long: b.long, random: b.random.Clone(), orders: b.orders.Clone(m),
		account: py.Clone(b.account, m), authenticated: py.Clone(b.authenticated, m), market: py.Clone(b.market, m),
		counter: py.Clone(b.counter, m), stocks: py.Clone(b.stocks, m), watchList: py.Clone(b.watchList, m),
		transactions: py.Clone(b.transactions, m)}
}

func (b *tradingBot) Call(method int, args []py.Value) (py.Value, error) {
	switch method {
	case tradingWatch:
		return b.watch(args[0])
	case tradingCancel:
		return b.cancel(args[0])
	case tradingFilter:
		return b.filter(args[0], args[1], args[2])
	case tradingFund:
		return b.fund(args[0])
	case tradingAccount:
		if !py.Truthy(b.authenticated) {
			return tradingNoAccount, nil
		}
		return b.account, nil
	case tradingSector:
		return b.sector(args[0])
	case tradingTime:
		return tradingNow, nil
	case tradingOrder:
		return b.order(args[0])
	case tradingOrders:
		if !py.Truthy(b.authenticated) {
			return py.NewList(fault("User not authenticated. Please log in to view order history.")), nil // a list, as in Python
		}
		return py.NewDict("history", py.NewList(b.orders.Keys()...)), nil
	case tradingStock:
		return b.stock(args[0])
	case tradingSymbol:
		return replyFor(stockSymbols(), args[0], noSymbol)
	case tradingTransactions:
		return b.history(args[0], args[1])
	case tradingWatchlist:
		return b.watched()
	case tradingNotify:
		return b.notify(args[0], args[1])
	case tradingPlace:
		return b.place(args[0], args[1], args[2], args[3])
	case tradingUnwatch:
		return b.unwatch(args[0])
	case tradingLoginStatus:
		return py.NewDict("status", py.Truthy(b.authenticated)), nil
	case tradingLogin:
		if py.Truthy(b.authenticated) {
			return tradingAlready, nil
		}
		b.authenticated = true
		return tradingLoggedIn, nil
	case tradingLogout:
		if !py.Truthy(b.authenticated) {
			return tradingNobody, nil
		}
		b.authenticated = false
		return tradingLoggedOut, nil
	case tradingWithdraw:
		return b.withdraw(args[0])
	}
	return nil, noMethod(method)
}

var (
	tradingNow       = fixed("current_time", "10:30 AM")
	tradingAlready   = fixed("status", "Already logged in")
	tradingLoggedIn  = fixed("status", "Logged in successfully")
	tradingNobody    = fixed("status", "No user is currently logged in")
	tradingLoggedOut = fixed("status", "Logged out successfully")
	tradingNoAccount = fixed("error", "User not authenticated. Please log in to view account information.")
	tradingNoOrder   = fixed("error", "User not authenticated. Please log in to place an order.")
	tradingNoFunding = fixed("error", "User not authenticated. Please log in to fund the account.")
	tradingNoMoney   = fixed("error", "User not authenticated. Please log in to make a transaction.")
	tradingNoUnwatch = fixed("error", "User not authenticated. Please log in to modify the watchlist.")
	tradingClosed    = fixed("error", "Market is closed. Transactions are not allowed.")
	tradingBadAmount = fixed("error", "Transaction amount must be positive.")
	tradingBadFund   = fixed("error", "Funding amount must be positive.")
	tradingBadOrder  = fixed("error", "Price and amount must be positive values.")
	tradingTooLittle = fixed("error", "Insufficient funds for withdrawal.")
	tradingQuiet     = fixed("notification", "No significant price changes in the selected stocks.")
)
