package api

import (
	"strings"
	"time"

	"rcgrpo/bfcl/internal/py"
)

func (b *tradingBot) info() (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return fault("User not authenticated. Please log in to view account information."), nil
	}
	return b.account, nil
}

func (b *tradingBot) now() (py.Value, error) { return py.NewDict("current_time", "10:30 AM"), nil }

// listOrders refuses with a list, as in Python.
func (b *tradingBot) listOrders() (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return py.NewList(fault("User not authenticated. Please log in to view order history.")), nil
	}
	return py.NewDict("history", py.NewList(b.orders.Keys()...)), nil
}

func (b *tradingBot) symbol(name py.Value) (py.Value, error) {
	return replyFor("symbol", stockSymbols, name, "Stock not found")
}

func (b *tradingBot) status() (py.Value, error) {
	return py.NewDict("status", py.Truthy(b.authenticated)), nil
}

func (b *tradingBot) login(_, _ py.Value) (py.Value, error) {
	if py.Truthy(b.authenticated) {
		return py.NewDict("status", "Already logged in"), nil
	}
	b.authenticated = true
	return py.NewDict("status", "Logged in successfully"), nil
}

func (b *tradingBot) logout() (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return py.NewDict("status", "No user is currently logged in"), nil
	}
	b.authenticated = false
	return py.NewDict("status", "Logged out successfully"), nil
}

// stock returns the record of a symbol; in long context a copy with long lists as moving averages.
func (b *tradingBot) stock(symbol py.Value) (py.Value, error) {
	known, err := py.Contains(b.stocks, symbol)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Stock with symbol '" + py.Str(symbol) + "' not found."), nil
	}
	stock, err := py.GetItem(b.stocks, symbol)
	if err != nil || !b.long {
		return stock, err
	}
	record, err := asDict(stock, "copy")
	if err != nil {
		return nil, err
	}
	record = record.ShallowCopy()
	record.SetStr("MA(5)", b.shared.constant("MA_5_EXTENSION"))
	record.SetStr("MA(20)", b.shared.constant("MA_20_EXTENSION"))
	return record, nil
}

// order returns an order; in long context a copy with texts about its symbol.
func (b *tradingBot) order(id py.Value) (py.Value, error) {
	order, known, err := b.orders.GetErr(id)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Order with ID " + py.Str(id) + " not found.Here is the list of orders_id: " +
			py.Repr(py.NewList(b.orders.Keys()...))), nil
	}
	if !b.long {
		return order, nil
	}
	record, err := asDict(order, "copy")
	if err != nil {
		return nil, err
	}
	symbol, err := field(record, "symbol")
	if err != nil {
		return nil, err
	}
	name := py.Str(symbol)
	texts, ok := b.shared.Long["ORDER_DETAIL_EXTENSION"].(*py.Dict)
	if !ok {
		return nil, py.Raise("TypeError", "the long-context constant ORDER_DETAIL_EXTENSION is not an object")
	}
	metadata := py.MakeDict(texts.Len())
	for i := range texts.Len() {
		key, text := texts.At(i)
		metadata.Set(key, strings.ReplaceAll(py.Str(text), "{symbol}", name))
	}
	record = record.ShallowCopy()
	record.SetStr("metadata", metadata)
	return record, nil
}

// cancel requires no login and is idempotent; it refuses only a completed order.
func (b *tradingBot) cancel(id py.Value) (py.Value, error) {
	order, known, err := b.orders.GetErr(id)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Order with ID " + py.Str(id) + " not found."), nil
	}
	status, err := field(order, "status")
	if err != nil {
		return nil, err
	}
	if status == "Completed" {
		return fault("Can't cancel order " + py.Str(id) + ". Order is already completed."), nil
	}
	if err := py.SetItem(order, "status", "Cancelled"); err != nil {
		return nil, err
	}
	return py.NewDict("order_id", id, "status", "Cancelled"), nil
}

// place stores an order under the counter and overwrites an existing one. A purchase must not
// exceed the balance, but nothing is charged.
func (b *tradingBot) place(kind, symbol, price, amount py.Value) (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return fault("User not authenticated. Please log in to place an order."), nil
	}
	known, err := py.Contains(b.stocks, symbol)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Invalid stock symbol: " + py.Str(symbol)), nil
	}
	for _, number := range []py.Value{price, amount} {
		bad, err := py.Compare("<=", number, int64(0))
		if err != nil {
			return nil, err
		}
		if bad {
			return fault("Price and amount must be positive values."), nil
		}
	}
	word, err := lower(kind)
	if err != nil {
		return nil, err
	}
	if word == "buy" {
		if refused, err := b.unaffordable(price, amount); refused != nil || err != nil {
			return refused, err
		}
	}
	if price, err = py.Float(price); err != nil {
		return nil, err
	}
	id := b.counter
	if err := b.orders.SetErr(id, py.NewDict("id", id, "order_type", kind, "symbol", symbol, "price", price,
		"amount", amount, "status", "Open")); err != nil {
		return nil, err
	}
	if b.counter, err = increment(b.counter); err != nil {
		return nil, err
	}
	return py.NewDict("order_id", id, "order_type", kind, "status", "Pending", "price", price, "amount", amount), nil
}

// unaffordable returns the refusal of a purchase that exceeds the balance, or None. Fractions of a
// share do not count.
func (b *tradingBot) unaffordable(price, amount py.Value) (py.Value, error) {
	each, err := py.Float(price)
	if err != nil {
		return nil, err
	}
	shares, err := py.Int(amount)
	if err != nil {
		return nil, err
	}
	cost, err := py.Mul(each, shares)
	if err != nil {
		return nil, err
	}
	account, err := asDict(b.account, "get")
	if err != nil {
		return nil, err
	}
	balance, ok := account.GetStr("balance")
	if !ok {
		balance = int64(0)
	}
	over, err := py.Compare(">", cost, balance)
	if !over || err != nil {
		return nil, err
	}
	required, err := money(cost)
	if err != nil {
		return nil, err
	}
	available, err := money(balance)
	if err != nil {
		return nil, err
	}
	return fault("Insufficient funds: required $" + required + " but only $" + available + " available."), nil
}

// money returns f"{v:.2f}" of a number.
func money(v py.Value) (string, error) {
	f, err := py.Float(v)
	if err != nil {
		return "", err
	}
	return py.Fixed(f.(float64), 2), nil
}

func (b *tradingBot) withdraw(amount py.Value) (py.Value, error) {
	switch {
	case !py.Truthy(b.authenticated):
		return fault("User not authenticated. Please log in to make a transaction."), nil
	case b.market != "Open":
		return fault("Market is closed. Transactions are not allowed."), nil
	}
	bad, err := py.Compare("<=", amount, int64(0))
	if err != nil {
		return nil, err
	}
	if bad {
		return fault("Transaction amount must be positive."), nil
	}
	balance, err := field(b.account, "balance")
	if err != nil {
		return nil, err
	}
	over, err := py.Compare(">", amount, balance)
	if err != nil {
		return nil, err
	}
	if over {
		return fault("Insufficient funds for withdrawal."), nil
	}
	return b.transact("withdrawal", "-", amount, "Withdrawal successful")
}

// fund checks neither the market nor an upper bound.
func (b *tradingBot) fund(amount py.Value) (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return fault("User not authenticated. Please log in to fund the account."), nil
	}
	bad, err := py.Compare("<=", amount, int64(0))
	if err != nil {
		return nil, err
	}
	if bad {
		return fault("Funding amount must be positive."), nil
	}
	return b.transact("deposit", "+", amount, "Account funded successfully")
}

// transact changes the balance and records the transaction at a random time of the day after the
// current time.
func (b *tradingBot) transact(kind, operator string, amount py.Value, status string) (py.Value, error) {
	balance, err := field(b.account, "balance")
	if err != nil {
		return nil, err
	}
	if balance, err = inPlace(operator, balance, amount); err != nil {
		return nil, err
	}
	if err := py.SetItem(b.account, "balance", balance); err != nil {
		return nil, err
	}
	transactions, err := asList(b.transactions, "append")
	if err != nil {
		return nil, err
	}
	moment := tradingClock.Add(time.Duration(b.random.RandInt(0, 86400)) * time.Second)
	transactions.Append(py.NewDict("type", kind, "amount", amount, "timestamp", moment.Format(time.DateTime)))
	return py.NewDict("status", status, "new_balance", balance), nil
}

// tradingClock is the constant time of get_current_time.
var tradingClock = time.Date(2024, 9, 1, 10, 30, 0, 0, time.UTC)

// history returns the transactions from midnight of start to midnight of end, inclusive, which
// excludes the rest of the last day. A falsy bound is open.
func (b *tradingBot) history(start, end py.Value) (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return py.NewList(fault("User not authenticated. Please log in to view transaction history.")), nil
	}
	from, to := time.Time{}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) // after every valid date
	var err error
	if py.Truthy(start) {
		if from, err = py.ParseDate(start); err != nil {
			return nil, err
		}
	}
	if py.Truthy(end) {
		if to, err = py.ParseDate(end); err != nil {
			return nil, err
		}
	}
	transactions, err := py.Iterate(b.transactions)
	if err != nil {
		return nil, err
	}
	found := py.NewList()
	for _, transaction := range transactions {
		text, err := field(transaction, "timestamp")
		if err != nil {
			return nil, err
		}
		at, err := py.ParseDateTime(text)
		if err != nil {
			return nil, err
		}
		if !at.Before(from) && !at.After(to) {
			found.Append(transaction)
		}
	}
	if b.long {
		found.Items = append(found.Items, b.shared.items("TRANSACTION_HISTORY_EXTENSION")...)
	}
	return py.NewDict("transaction_history", found), nil
}

// watched returns the watch list; in long context a list with many more symbols.
func (b *tradingBot) watched() (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return py.NewList("Error: User not authenticated. Please log in to view the watchlist."), nil
	}
	if !b.long {
		return py.NewDict("watchlist", b.watchList), nil
	}
	missing := "copy"
	switch b.watchList.(type) {
	case *py.Dict, *py.Set:
		missing = "extend" // these can be copied, but not extended
	}
	own, err := asList(b.watchList, missing)
	if err != nil {
		return nil, err
	}
	return concat(own.Items, b.shared.items("WATCH_LIST_EXTENSION")), nil
}

func concat(a, b []py.Value) *py.List {
	items := make([]py.Value, 0, len(a)+len(b))
	return py.NewList(append(append(items, a...), b...)...)
}

// watch ignores a symbol that is already watched or not on the market.
func (b *tradingBot) watch(symbol py.Value) (py.Value, error) {
	watched, err := py.Contains(b.watchList, symbol)
	if err != nil {
		return nil, err
	}
	if !watched {
		known, err := py.Contains(b.stocks, symbol)
		if err != nil {
			return nil, err
		}
		if known {
			list, err := asList(b.watchList, "append")
			if err != nil {
				return nil, err
			}
			list.Append(symbol)
		}
	}
	return py.NewDict("watchlist", b.watchList), nil
}

func (b *tradingBot) unwatch(symbol py.Value) (py.Value, error) {
	if !py.Truthy(b.authenticated) {
		return fault("User not authenticated. Please log in to modify the watchlist."), nil
	}
	watched, err := py.Contains(b.watchList, symbol)
	if err != nil {
		return nil, err
	}
	if !watched {
		return fault("Stock " + py.Str(symbol) + " not found in watchlist."), nil
	}
	list, err := asList(b.watchList, "remove")
	if err != nil {
		return nil, err
	}
	list.Remove(symbol)
	return py.NewDict("status", "Stock "+py.Str(symbol)+" removed from watchlist successfully."), nil
}

// sector returns the stocks of a sector; an unknown sector has none.
func (b *tradingBot) sector(name py.Value) (py.Value, error) {
	var own []py.Value
	var extension string
	switch name {
	case "Technology":
		own, extension = technologyStocks, "TECHNOLOGY_EXTENSION"
	case "Automobile":
		own, extension = automobileStocks, "AUTOMOBILE_EXTENSION"
	default:
		if err := py.Hashable(name); err != nil {
			return nil, err
		}
		return py.NewDict("stock_list", py.NewList()), nil
	}
	var more []py.Value
	if b.long {
		more = b.shared.items(extension)
	}
	return py.NewDict("stock_list", concat(own, more)), nil
}

// filter returns the symbols with a price from low to high; the price of an unknown symbol is 0.
func (b *tradingBot) filter(symbols, low, high py.Value) (py.Value, error) {
	items, err := py.Iterate(symbols)
	if err != nil {
		return nil, err
	}
	found := py.NewList()
	for _, symbol := range items {
		price, err := b.price(symbol)
		if err != nil {
			return nil, err
		}
		fits, err := py.Compare(">=", price, low)
		if err == nil && fits {
			fits, err = py.Compare("<=", price, high)
		}
		if err != nil {
			return nil, err
		}
		if fits {
			found.Append(symbol)
		}
	}
	return py.NewDict("filtered_stocks", found), nil
}

func (b *tradingBot) price(symbol py.Value) (py.Value, error) {
	stocks, err := asDict(b.stocks, "get")
	if err != nil {
		return nil, err
	}
	stock, known, err := stocks.GetErr(symbol)
	if err != nil || !known {
		return int64(0), err
	}
	record, err := asDict(stock, "get")
	if err != nil {
		return nil, err
	}
	return setting(record, "price", int64(0)), nil
}

// notify returns the symbols whose price changed by at least threshold in either direction.
func (b *tradingBot) notify(symbols, threshold py.Value) (py.Value, error) {
	items, err := py.Iterate(symbols)
	if err != nil {
		return nil, err
	}
	var changed []py.Value
	for _, symbol := range items {
		moved, err := b.moved(symbol, threshold)
		if err != nil {
			return nil, err
		}
		if moved {
			changed = append(changed, symbol)
		}
	}
	if len(changed) == 0 {
		return py.NewDict("notification", "No significant price changes in the selected stocks."), nil
	}
	names, err := join(changed)
	if err != nil {
		return nil, err
	}
	return py.NewDict("notification", "Stocks "+names+" have significant price changes."), nil
}

func (b *tradingBot) moved(symbol, threshold py.Value) (bool, error) {
	known, err := py.Contains(b.stocks, symbol)
	if !known || err != nil {
		return false, err
	}
	stock, err := py.GetItem(b.stocks, symbol)
	if err != nil {
		return false, err
	}
	change, err := field(stock, "percent_change")
	if err != nil {
		return false, err
	}
	if change, err = py.Abs(change); err != nil {
		return false, err
	}
	return py.Compare(">=", change, threshold)
}
