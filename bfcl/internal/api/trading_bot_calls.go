package api

import (
	"slices"
	"strings"
	"time"

	"rcgrpo/bfcl/internal/py"
)

func (b *tradingBot) info() py.Value {
	if !py.Truthy(b.authenticated) {
		return errorReply("User not authenticated. Please log in to view account information.")
	}
	return b.account
}

func (b *tradingBot) now() py.Value { return py.NewDict("current_time", "10:30 AM") }

// listOrders refuses with a list, as in Python.
func (b *tradingBot) listOrders() py.Value {
	if !py.Truthy(b.authenticated) {
		return py.NewList(errorReply("User not authenticated. Please log in to view order history."))
	}
	return py.NewDict("history", py.NewList(b.orders.Keys()...))
}

func (b *tradingBot) symbol(name py.Value) py.Value {
	return replyFor("symbol", stockSymbols, name, "Stock not found")
}

func (b *tradingBot) status() py.Value {
	return py.NewDict("status", py.Truthy(b.authenticated))
}

func (b *tradingBot) login(_, _ py.Value) py.Value {
	if py.Truthy(b.authenticated) {
		return py.NewDict("status", "Already logged in")
	}
	b.authenticated = true
	return py.NewDict("status", "Logged in successfully")
}

func (b *tradingBot) logout() py.Value {
	if !py.Truthy(b.authenticated) {
		return py.NewDict("status", "No user is currently logged in")
	}
	b.authenticated = false
	return py.NewDict("status", "Logged out successfully")
}

// stock returns the record of a symbol; in long context a copy with long lists as moving averages.
func (b *tradingBot) stock(symbol py.Value) py.Value {
	if !try(py.Contains(b.stocks, symbol)) {
		return errorReply("Stock with symbol '" + py.Str(symbol) + "' not found.")
	}
	stock := try(py.GetItem(b.stocks, symbol))
	if !b.longContext {
		return stock
	}
	record := asDict(stock, "copy").ShallowCopy()
	record.Set("MA(5)", b.shared.constant("MA_5_EXTENSION"))
	record.Set("MA(20)", b.shared.constant("MA_20_EXTENSION"))
	return record
}

// order returns an order; in long context a copy with texts about its symbol.
func (b *tradingBot) order(id py.Value) py.Value {
	order, known := get(b.orders, id)
	if !known {
		return errorReply("Order with ID " + py.Str(id) + " not found.Here is the list of orders_id: " +
			py.Repr(py.NewList(b.orders.Keys()...)))
	}
	if !b.longContext {
		return order
	}
	record := asDict(order, "copy")
	name := py.Str(field(record, "symbol"))
	texts, ok := b.shared.Long["ORDER_DETAIL_EXTENSION"].(*py.Dict)
	if !ok {
		panic(py.Raise("TypeError", "the long-context constant ORDER_DETAIL_EXTENSION is not an object"))
	}
	metadata := py.MakeDict(texts.Len())
	for key, text := range texts.All() {
		metadata.Set(key, strings.ReplaceAll(py.Str(text), "{symbol}", name))
	}
	record = record.ShallowCopy()
	record.Set("metadata", metadata)
	return record
}

// cancel requires no login and is idempotent; it refuses only a completed order.
func (b *tradingBot) cancel(id py.Value) py.Value {
	order, known := get(b.orders, id)
	if !known {
		return errorReply("Order with ID " + py.Str(id) + " not found.")
	}
	if field(order, "status") == "Completed" {
		return errorReply("Can't cancel order " + py.Str(id) + ". Order is already completed.")
	}
	check(py.SetItem(order, "status", "Cancelled"))
	return py.NewDict("order_id", id, "status", "Cancelled")
}

// place stores an order under the counter and overwrites an existing one. A purchase must not
// exceed the balance, but nothing is charged.
func (b *tradingBot) place(kind, symbol, price, amount py.Value) py.Value {
	if !py.Truthy(b.authenticated) {
		return errorReply("User not authenticated. Please log in to place an order.")
	}
	if !try(py.Contains(b.stocks, symbol)) {
		return errorReply("Invalid stock symbol: " + py.Str(symbol))
	}
	for _, number := range []py.Value{price, amount} {
		if try(py.Compare("<=", number, int64(0))) {
			return errorReply("Price and amount must be positive values.")
		}
	}
	if lower(kind) == "buy" {
		if refused := b.unaffordable(price, amount); refused != nil {
			return refused
		}
	}
	price = try(py.Float(price))
	id := b.counter
	check(b.orders.SetErr(id, py.NewDict("id", id, "order_type", kind, "symbol", symbol, "price", price,
		"amount", amount, "status", "Open")))
	b.counter = increment(b.counter)
	return py.NewDict("order_id", id, "order_type", kind, "status", "Pending", "price", price, "amount", amount)
}

// unaffordable returns the refusal of a purchase that exceeds the balance, or None. Fractions of a
// share do not count.
func (b *tradingBot) unaffordable(price, amount py.Value) py.Value {
	each, shares := try(py.Float(price)), try(py.Int(amount))
	cost := try(py.Mul(each, shares))
	balance := setting(asDict(b.account, "get"), "balance", int64(0))
	if !try(py.Compare(">", cost, balance)) {
		return nil
	}
	return errorReply("Insufficient funds: required $" + money(cost) + " but only $" + money(balance) + " available.")
}

// money returns f"{v:.2f}" of a number.
func money(v py.Value) string {
	return py.Fixed(try(py.Float(v)).(float64), 2)
}

func (b *tradingBot) withdraw(amount py.Value) py.Value {
	switch {
	case !py.Truthy(b.authenticated):
		return errorReply("User not authenticated. Please log in to make a transaction.")
	case b.market != "Open":
		return errorReply("Market is closed. Transactions are not allowed.")
	}
	if try(py.Compare("<=", amount, int64(0))) {
		return errorReply("Transaction amount must be positive.")
	}
	balance := field(b.account, "balance")
	if try(py.Compare(">", amount, balance)) {
		return errorReply("Insufficient funds for withdrawal.")
	}
	return b.transact("withdrawal", "-", amount, "Withdrawal successful")
}

// fund checks neither the market nor an upper bound.
func (b *tradingBot) fund(amount py.Value) py.Value {
	if !py.Truthy(b.authenticated) {
		return errorReply("User not authenticated. Please log in to fund the account.")
	}
	if try(py.Compare("<=", amount, int64(0))) {
		return errorReply("Funding amount must be positive.")
	}
	return b.transact("deposit", "+", amount, "Account funded successfully")
}

// transact changes the balance and records the transaction at a random time of the day after the
// current time.
func (b *tradingBot) transact(kind, operator string, amount py.Value, status string) py.Value {
	balance := inPlace(operator, field(b.account, "balance"), amount)
	check(py.SetItem(b.account, "balance", balance))
	transactions := asList(b.transactions, "append")
	moment := tradingClock.Add(time.Duration(b.random.RandInt(0, 86400)) * time.Second)
	transactions.Append(py.NewDict("type", kind, "amount", amount, "timestamp", moment.Format(time.DateTime)))
	return py.NewDict("status", status, "new_balance", balance)
}

// tradingClock is the constant time of get_current_time.
var tradingClock = time.Date(2024, 9, 1, 10, 30, 0, 0, time.UTC)

// history returns the transactions from midnight of start to midnight of end, inclusive, which
// excludes the rest of the last day. A falsy bound is open.
func (b *tradingBot) history(start, end py.Value) py.Value {
	if !py.Truthy(b.authenticated) {
		return py.NewList(errorReply("User not authenticated. Please log in to view transaction history."))
	}
	from := time.Time{}                                // before every valid date
	to := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) // after every valid date
	if py.Truthy(start) {
		from = try(py.ParseDate(start))
	}
	if py.Truthy(end) {
		to = try(py.ParseDate(end))
	}
	found := py.NewList()
	for _, transaction := range try(py.Iterate(b.transactions)) {
		at := try(py.ParseDateTime(field(transaction, "timestamp")))
		if !at.Before(from) && !at.After(to) {
			found.Append(transaction)
		}
	}
	if b.longContext {
		found.Items = append(found.Items, b.shared.items("TRANSACTION_HISTORY_EXTENSION")...)
	}
	return py.NewDict("transaction_history", found)
}

// watched returns the watch list; in long context a list with many more symbols.
func (b *tradingBot) watched() py.Value {
	if !py.Truthy(b.authenticated) {
		return py.NewList("Error: User not authenticated. Please log in to view the watchlist.")
	}
	if !b.longContext {
		return py.NewDict("watchlist", b.watchList)
	}
	missing := "copy" // the method that Python calls first and does not find
	switch b.watchList.(type) {
	case *py.Dict, *py.Set:
		missing = "extend" // these can be copied, but not extended
	}
	own := asList(b.watchList, missing)
	return py.NewList(slices.Concat(own.Items, b.shared.items("WATCH_LIST_EXTENSION"))...)
}

// watch ignores a symbol that is already watched or not on the market.
func (b *tradingBot) watch(symbol py.Value) py.Value {
	if !try(py.Contains(b.watchList, symbol)) && try(py.Contains(b.stocks, symbol)) {
		asList(b.watchList, "append").Append(symbol)
	}
	return py.NewDict("watchlist", b.watchList)
}

func (b *tradingBot) unwatch(symbol py.Value) py.Value {
	if !py.Truthy(b.authenticated) {
		return errorReply("User not authenticated. Please log in to modify the watchlist.")
	}
	if !try(py.Contains(b.watchList, symbol)) {
		return errorReply("Stock " + py.Str(symbol) + " not found in watchlist.")
	}
	asList(b.watchList, "remove").Remove(symbol)
	return py.NewDict("status", "Stock "+py.Str(symbol)+" removed from watchlist successfully.")
}

// sector returns the stocks of a sector; an unknown sector has none.
func (b *tradingBot) sector(name py.Value) py.Value {
	var own []py.Value
	var extension string
	switch name {
	case "Technology":
		own, extension = technologyStocks, "TECHNOLOGY_EXTENSION"
	case "Automobile":
		own, extension = automobileStocks, "AUTOMOBILE_EXTENSION"
	default:
		check(py.Hashable(name))
		return py.NewDict("stock_list", py.NewList())
	}
	var more []py.Value
	if b.longContext {
		more = b.shared.items(extension)
	}
	return py.NewDict("stock_list", py.NewList(slices.Concat(own, more)...))
}

// filter returns the symbols with a price from low to high; the price of an unknown symbol is 0.
func (b *tradingBot) filter(symbols, low, high py.Value) py.Value {
	found := chosen(symbols, func(symbol py.Value) bool {
		price := b.price(symbol)
		return try(py.Compare(">=", price, low)) && try(py.Compare("<=", price, high))
	})
	return py.NewDict("filtered_stocks", py.NewList(found...))
}

// chosen returns the symbols that f accepts, which it is asked once for each: a text has one for each letter.
func chosen(symbols py.Value, f func(symbol py.Value) bool) (found []py.Value) {
	answers := py.MakeDict(0)
	for _, symbol := range try(py.Iterate(symbols)) {
		answer, known := answers.Get(symbol)
		if !known {
			answer = f(symbol)
			answers.Set(symbol, answer)
		}
		if answer == true {
			found = append(found, symbol)
		}
	}
	return found
}

// price returns the price of a symbol; 0 if it is unknown.
func (b *tradingBot) price(symbol py.Value) py.Value {
	stock, known := get(asDict(b.stocks, "get"), symbol)
	if !known {
		return int64(0)
	}
	return setting(asDict(stock, "get"), "price", int64(0))
}

// maxSearches limits the comparisons of notify where the stocks are a list or text, as a stranger's state may have
// them.
const maxSearches = 1 << 20

// notify returns the symbols whose price changed by at least threshold in either direction.
func (b *tradingBot) notify(symbols, threshold py.Value) py.Value {
	_, index := b.stocks.(*py.Dict)
	if n, err := py.Len(b.stocks); err == nil && !index && n*len(try(py.Iterate(symbols))) > maxSearches {
		panic(py.Raise("MemoryError", "the search for the symbols takes more than %d comparisons", maxSearches))
	}
	changed := chosen(symbols, func(symbol py.Value) bool { return b.moved(symbol, threshold) })
	if len(changed) == 0 {
		return py.NewDict("notification", "No significant price changes in the selected stocks.")
	}
	return py.NewDict("notification", "Stocks "+join(changed)+" have significant price changes.")
}

// moved reports whether the price of a symbol changed by at least threshold; false for an unknown symbol.
func (b *tradingBot) moved(symbol, threshold py.Value) bool {
	if !try(py.Contains(b.stocks, symbol)) {
		return false
	}
	change := try(py.Abs(field(try(py.GetItem(b.stocks, symbol)), "percent_change")))
	return try(py.Compare(">=", change, threshold))
}
