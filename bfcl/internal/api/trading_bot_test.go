package api

import (
	"math"
	"testing"

	"rcgrpo/bfcl/internal/py"
)

const tradingScenario = `{
	"orders": {"7": {"symbol": "AAPL", "status": "Completed"}, "8": {"symbol": "T", "status": "Open"}, "order_type": "Buy"},
	"account_info": {"balance": 100.5}, "authenticated": true, "market_status": "Open", "order_counter": 9,
	"stocks": {"AAPL": {"price": 10, "percent_change": -0.5}, "ZETA": {"price": 22.5, "percent_change": 0.1}},
	"watch_list": ["AAPL"],
	"transaction_history": [{"timestamp": "2024-09-01 00:00:00"}, {"timestamp": "2024-09-02 00:00:00"}, {"timestamp": "2024-09-02 00:00:01"}]}`

func TestTradingOrders(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"history": [7, 8, "order_type"]}`, "get_order_history")
	p.want(`{"error": "Order with ID 1 not found.Here is the list of orders_id: [7, 8, 'order_type']"}`, "get_order_details", int64(1))
	p.want(`Buy`, "get_order_details", "order_type")
	p.want(`TypeError: string indices must be integers, not 'str'`, "cancel_order", "order_type")
	p.want(`TypeError: unhashable type: 'list'`, "get_order_details", py.NewList())
	p.want(`{"error": "Can't cancel order 7. Order is already completed."}`, "cancel_order", int64(7))
	p.want(`{"order_id": 8.0, "status": "Cancelled"}`, "cancel_order", 8.0)
	p.want(`{"order_id": 8, "status": "Cancelled"}`, "cancel_order", int64(8))
	p.want(`{"error": "Order with ID 8 not found."}`, "cancel_order", "8")
	p.want(`{"order_id": 9, "order_type": "Sell", "status": "Pending", "price": 1000.0, "amount": 1000}`, "place_order", "Sell", "AAPL", int64(1000), int64(1000))
	p.want(`{"id": 9, "order_type": "Sell", "symbol": "AAPL", "price": 1000.0, "amount": 1000, "status": "Open"}`, "get_order_details", int64(9))
	p.want(`{"balance": 100.5}`, "get_account_info") // an order charges nothing
}

func TestTradingPurchaseIsHeldAgainstTheBalance(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"error": "Insufficient funds: required $200.00 but only $100.50 available."}`, "place_order", "BUY", "AAPL", int64(100), int64(2))
	p.want(`{"order_id": 9, "order_type": "buy", "status": "Pending", "price": 50.25, "amount": 2.9}`, "place_order", "buy", "AAPL", 50.25, 2.9)
	p.want(`{"error": "Price and amount must be positive values."}`, "place_order", "Buy", "AAPL", int64(0), "x")
	p.want(`TypeError: '<=' not supported between instances of 'str' and 'int'`, "place_order", "Buy", "AAPL", int64(1), "x")
	p.want(`AttributeError: 'int' object has no attribute 'lower'`, "place_order", int64(1), "AAPL", int64(1), int64(1))
	p.want(`{"error": "Invalid stock symbol: XX"}`, "place_order", "Buy", "XX", int64(1), int64(1))
	p.want(`{"status": "Logged out successfully"}`, "trading_logout")
	p.want(`{"error": "User not authenticated. Please log in to place an order."}`, "place_order", "Buy", "XX", int64(1), int64(1))
}

// The moments are those of random.Random(1053520) in CPython.
func TestTradingTransactions(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"transaction_history": [{"timestamp": "2024-09-01 00:00:00"}, {"timestamp": "2024-09-02 00:00:00"}]}`,
		"get_transaction_history", "2024-09-01", "2024-9-2")
	p.want(`{"transaction_history": [{"timestamp": "2024-09-02 00:00:00"}, {"timestamp": "2024-09-02 00:00:01"}]}`,
		"get_transaction_history", "2024-09-02", "")
	p.want(`{"transaction_history": []}`, "get_transaction_history", nil, "0001-01-01")
	p.want(`ValueError: time data '1/9' does not match format '%Y-%m-%d'`, "get_transaction_history", "1/9")
	p = start(t, "TradingBot", `{"authenticated": true, "market_status": "Open", "account_info": {"balance": 100.5},
		"transaction_history": [{"timestamp": "2024-09-02 00:00:01"}]}`)
	p.want(`{"error": "Insufficient funds for withdrawal."}`, "withdraw_funds", int64(101))
	p.want(`{"error": "Transaction amount must be positive."}`, "withdraw_funds", math.Copysign(0, -1))
	p.want(`{"status": "Withdrawal successful", "new_balance": 0.5}`, "withdraw_funds", int64(100))
	p.want(`{"status": "Account funded successfully", "new_balance": 1.5}`, "fund_account", true)
	p.want(`{"error": "Funding amount must be positive."}`, "fund_account", int64(0))
	p.want(`{"transaction_history": [{"timestamp": "2024-09-02 00:00:01"}, {"type": "withdrawal", "amount": 100, "timestamp": "2024-09-02 05:40:15"}, `+
		`{"type": "deposit", "amount": true, "timestamp": "2024-09-01 12:26:34"}]}`, "get_transaction_history")
}

func TestTradingWithoutLogin(t *testing.T) {
	p := start(t, "TradingBot", "")
	p.want(`['Error: User not authenticated. Please log in to view the watchlist.']`, "get_watchlist")
	p.want(`[{'error': 'User not authenticated. Please log in to view order history.'}]`, "get_order_history")
	p.want(`[{'error': 'User not authenticated. Please log in to view transaction history.'}]`, "get_transaction_history")
	p.want(`{"error": "User not authenticated. Please log in to modify the watchlist."}`, "remove_stock_from_watchlist", "NVDA")
	p.want(`{"status": "Logged in successfully"}`, "trading_login", "u", "p")
	p.want(`{"status": "Already logged in"}`, "trading_login", "other", "")
	p.want(`{"error": "Market is closed. Transactions are not allowed."}`, "withdraw_funds", int64(1))
	// The counter of the default scenario is the id of an order that is there already.
	p.want(`{"order_id": 12446, "order_type": "Sell", "status": "Pending", "price": 1.0, "amount": 1}`, "place_order", "Sell", "AAPL", int64(1), int64(1))
	p.want(`{"history": [12345, 12446]}`, "get_order_history")
}

func TestTradingWatchList(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"watchlist": ["AAPL", "ZETA"]}`, "add_to_watchlist", "ZETA")
	p.want(`{"watchlist": ["AAPL", "ZETA"]}`, "add_to_watchlist", "nowhere")
	p.want(`{"status": "Stock AAPL removed from watchlist successfully."}`, "remove_stock_from_watchlist", "AAPL")
	p.want(`{"error": "Stock ['AAPL'] not found in watchlist."}`, "remove_stock_from_watchlist", py.NewList("AAPL"))
	p.want(`{"watchlist": ["ZETA"]}`, "get_watchlist")
}

func TestTradingStocks(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"price": 10, "percent_change": -0.5}`, "get_stock_info", "AAPL")
	p.want(`{"error": "Stock with symbol '(1,)' not found."}`, "get_stock_info", py.Tuple{int64(1)})
	p.want(`TypeError: unhashable type: 'list'`, "get_stock_info", py.NewList())
}

func TestTradingFilters(t *testing.T) {
	p := start(t, "TradingBot", tradingScenario)
	p.want(`{"filtered_stocks": ["nowhere", "AAPL"]}`, "filter_stocks_by_price", py.NewList("nowhere", "AAPL", "ZETA"), int64(0), int64(10))
	p.want(`TypeError: 'NoneType' object is not iterable`, "filter_stocks_by_price", nil, int64(0), int64(10))
	p.want(`{"notification": "Stocks AAPL have significant price changes."}`, "notify_price_change", py.NewList("AAPL", "ZETA", "nowhere"), 0.5)
	p.want(`{"notification": "No significant price changes in the selected stocks."}`, "notify_price_change", "AAPL", int64(0))
	p.want(`{"stock_list": []}`, "get_available_stocks", "technology")
	p.want(`TypeError: unhashable type: 'dict'`, "get_available_stocks", py.NewDict())
	p.want(`{"symbol": "Stock not found"}`, "get_symbol_by_name", "apple")
	p.want(`{"current_time": "10:30 AM"}`, "get_current_time")
}

func TestTradingLongContext(t *testing.T) {
	constants := smallLong(t)
	PrepareLong(constants)
	p := startLong(t, "TradingBot", tradingScenario, constants)
	p.want(`{"price": 10, "percent_change": -0.5, "MA(5)": [1.5, 2.0], "MA(20)": [3.0]}`, "get_stock_info", "AAPL")
	p.want(`{"symbol": "AAPL", "status": "Completed", "metadata": {"a": "AAPL is AAPL", "b": "plain \u00e9"}}`, "get_order_details", int64(7))
	p.want(`AttributeError: 'str' object has no attribute 'copy'`, "get_order_details", "order_type")
	p.want(`['AAPL', 'W1', "it's", Ellipsis]`, "get_watchlist")
	p.want(`{"stock_list": ["AAPL", "GOOG", "MSFT", "NVDA", "T1"]}`, "get_available_stocks", "Technology")
	p.want(`{"stock_list": ["TSLA", "F", "GM"]}`, "get_available_stocks", "Automobile")
	p.want(`{"transaction_history": [{"type": "deposit", "amount": 1.0, "timestamp": "2024-05-01 22:14:05.858817"}]}`,
		"get_transaction_history", "2025-01-01")
	p.want(`{"watchlist": ["AAPL"]}`, "add_to_watchlist", "W1") // what long context adds is no state
}
