package api

import (
	"testing"

	"rcgrpo/bfcl/internal/py"
)

const travelScenario = `{
	"credit_card_list": {"k": {"balance": 1000}, "e": {}},
	"booking_record": {"b": {"card_id": "k", "travel_cost": 10.5}, "x": {}},
	"access_token": "t", "token_expires_in": 3600, "user_first_name": "Ann", "user_last_name": "Lee"}`

// The numbers are those of random.Random(141053) in CPython.
func TestTravelCards(t *testing.T) {
	p := start(t, "TravelAPI", "")
	register := func(token string) string {
		return p.call("register_credit_card", token, "n", "e", "h", int64(1))
	}
	for _, step := range []struct{ got, want string }{
		{p.call("travel_get_login_status"), `{"status": false}`},
		{register("t"), `{"error": "Token not initialized"}`},
		{p.call("authenticate_travel", "a", "b", "c", "rw", "Ann", "Lee"), `{"expires_in": 2, "access_token": "251675", "token_type": "Bearer", "scope": "rw"}`},
		{p.call("travel_get_login_status"), `{"status": true}`},
		{register("t"), `{"error": "Invalid access token"}`},
		{register("251675"), `{"card_id": "391310425148"}`},
		{register("251675"), `{"card_id": "474479286913"}`}, // the same number again: only ids are looked at
		{p.call("get_credit_card_balance", "251675", "474479286913"), `{"card_balance": 94186}`},
		{p.call("get_credit_card_balance", "251675", "n"), `{"error": "Card not registered. Here are a list of card_id's: ['391310425148', '474479286913']"}`},
		{p.call("register_credit_card", "251675", "391310425148", "e", "h", int64(1)), `{"error": "Card already registered"}`},
		{p.call("get_credit_card_balance", "251675", py.NewList()), `TypeError: unhashable type: 'list'`},
	} {
		if step.got != step.want {
			t.Errorf("got %s, want %s", step.got, step.want)
		}
	}
}

func TestTravelBooking(t *testing.T) {
	p := start(t, "TravelAPI", travelScenario)
	book := func(card, date, class py.Value) string {
		return p.call("book_flight", "t", card, date, "SFO", "LAX", class)
	}
	for _, step := range []struct{ got, want string }{
		{book("k", "2024-11-16", "economy"), `{"booking_id": "3426812", "transaction_id": "45451592", "booking_status": true, "booking_history": {}}`},
		{book("e", "2024-11-16", "economy"), `{"booking_status": false, "error": "Balance not found"}`},
		{book("z", "2024-11-16", "economy"), `{"booking_status": false, "error": "Card not registered"}`},
		{book("k", "16/11/2024", "economy"), `{"booking_status": false, "error": "Invalid date format. Use YYYY-MM-DD."}`},
		{book("k", nil, "economy"), `TypeError: strptime() argument 1 must be str, not None`},
		{book("k", "2024-11-16", py.NewList()), `TypeError: unhashable type: 'list'`},
		{p.call("book_flight", "t", "k", "2024-11-16", "SFO", "SFO", "first"), `{"booking_status": false, "error": "No available route for the given airports."}`},
		{p.call("book_flight", "t", "k", "2024-11-16", int64(5), "SFO", "first"), `{"booking_status": false, "error": "Invalid departure airport code: 5"}`},
		{p.call("purchase_insurance", "t", "basic", "b", int64(2000), "k"), `{"insurance_id": "498276044", "insurance_status": true}`},
		{p.call("cancel_booking", "t", "b"), `{"cancel_status": true}`},
		{p.call("cancel_booking", "t", "b"), `{"cancel_status": false, "error": "Booking not found"}`},
		{p.call("cancel_booking", "t", "x"), `KeyError: 'card_id'`},
		{p.call("get_booking_history", "t"), `{"booking_history": {"x": {}, "3426812": {"card_id": "k", "travel_date": "2024-11-16", ` +
			`"travel_from": "SFO", "travel_to": "LAX", "travel_class": "economy", "travel_cost": 200.0, "transaction_id": "45451592"}}}`},
		{p.call("retrieve_invoice", "t", "3426812"), `{"invoice": {"booking_id": "3426812", "travel_date": "2024-11-16", ` +
			`"travel_from": "SFO", "travel_to": "LAX", "travel_class": "economy", "travel_cost": 200.0, "transaction_id": "45451592"}}`},
		{p.call("retrieve_invoice", "t", "x"), `KeyError: 'travel_date'`},
		{p.call("retrieve_invoice", "t"), `{"error": "Booking not found"}`},
		{book("k", "2024-11-17", "economy"), `{"booking_status": false, "error": "Insufficient funds"}`},
		{p.call("contact_customer_support", "b", "help"), `{"error": "Booking not found"}`},
	} {
		if step.got != step.want {
			t.Errorf("got %s, want %s", step.got, step.want)
		}
	}
}

func TestTravelBudgetIsHeldAgainstTheBalance(t *testing.T) {
	p := start(t, "TravelAPI", travelScenario)
	p.want(`TypeError: unsupported operand type(s) for -=: 'int' and 'list'`, "purchase_insurance", "t", "basic", "b", py.NewList(), "k")
	p.want(`{"budget_limit": 1000.5}`, "set_budget_limit", "t", " 1000.5 ")
	p.want(`{"booking_status": false, "error": "Balance is less than budget limit"}`, "book_flight", "t", "k", "2024-11-17", "SFO", "LAX", "economy")
	p.want(`{"budget_limit": 1000.0}`, "set_budget_limit", "t", int64(1000))
	p.want(`{"booking_id": "3426812", "transaction_id": "45451592", "booking_status": true, "booking_history": {}}`,
		"book_flight", "t", "k", "2024-11-17", "SFO", "LAX", "economy")
	p.want(`{"insurance_status": false, "error": "Exceeded budget limit"}`, "purchase_insurance", "t", "basic", "none", 1000.5, "none")
	p.want(`{"insurance_status": false, "error": "Booking not found"}`, "purchase_insurance", "t", "basic", "none", int64(5), "none")
	p.want(`{"insurance_status": false, "error": "Credit card not registered"}`, "purchase_insurance", "t", "basic", "b", int64(5), "none")
}

func TestTravelCosts(t *testing.T) {
	p := start(t, "TravelAPI", "")
	for name, tc := range map[string]struct {
		from, to, date, class py.Value
		want                  string
	}{
		"even digit sum":            {"SFO", "LAX", "2024-11-17", "economy", `{"travel_cost_list": [400.0]}`},
		"odd digit sum":             {"SFO", "LAX", "2024-11-16", "economy", `{"travel_cost_list": [200.0]}`},
		"no digits":                 {"SFO", "LAX", "soon", "business", `{"travel_cost_list": [800.0]}`},
		"texts in a list":           {"SFO", "LAX", py.NewList("1", "23", "x"), "first", `{"travel_cost_list": [2000.0]}`},
		"number in a list":          {"SFO", "LAX", py.NewList(int64(1)), "first", `AttributeError: 'int' object has no attribute 'isdigit'`},
		"number as a date":          {"SFO", "LAX", int64(1), "first", `TypeError: 'int' object is not iterable`},
		"superscript":               {"SFO", "LAX", "2²", "first", `ValueError: invalid literal for int() with base 10: '²'`},
		"other digits":              {"SFO", "LAX", "٣", "economy", `{"travel_cost_list": [200.0]}`},
		"routes have a direction":   {"LAX", "CRH", "1", "economy", `{"travel_cost_list": [390.0]}`},
		"no route":                  {"CRH", "LAX", int64(1), "none", `ValueError: No available route for the given airports.`},
		"no class":                  {"SFO", "LAX", int64(1), "Economy", `ValueError: Invalid travel class. Options are: economy, business, first.`},
		"airport that is no key":    {"SFO", py.NewList(), "1", "economy", `TypeError: unhashable type: 'list'`},
		"class that is no text":     {"SFO", "LAX", "1", py.NewList(), `ValueError: Invalid travel class. Options are: economy, business, first.`},
		"airport that is no text":   {int64(1), true, "1", "economy", `ValueError: No available route for the given airports.`},
		"date that is a dictionary": {"SFO", "LAX", py.NewDict("1", "2"), "economy", `{"travel_cost_list": [200.0]}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := &play{t, p.class, p.it}
			p.want(tc.want, "get_flight_cost", tc.from, tc.to, tc.date, tc.class)
		})
	}
}

func TestTravelExchange(t *testing.T) {
	p := start(t, "TravelAPI", "")
	p.want(`{"exchanged_value": 0.16}`, "compute_exchange_rate", "EUR", "USD", 0.125)
	p.want(`{"exchanged_value": 700.0}`, "compute_exchange_rate", "USD", "RMB", int64(100))
	p.want(`ValueError: could not convert string to float: 'ababababababab'`, "compute_exchange_rate", "USD", "RMB", "ab")
	p.want(`TypeError: can't multiply sequence by non-int of type 'float'`, "compute_exchange_rate", "USD", "EUR", "ab")
	p.want(`ValueError: No available exchange rate for the given currencies.`, "compute_exchange_rate", "USD", "USD", int64(1))
}

// The shared "today" of these tests is 23 March 2026.
func TestTravelVerification(t *testing.T) {
	p := start(t, "TravelAPI", travelScenario)
	p.want(`{"verification_status": true}`, "verify_traveler_information", "Ann", "Lee", "2008-03-23", "US1")
	p.want(`{"verification_status": false, "verification_failure": "Traveler must be at least 18 years old."}`,
		"verify_traveler_information", "Ann", "Lee", "2008-03-24", int64(5))
	p.want(`{"verification_status": false, "verification_failure": "Passport must be issued by the United States."}`,
		"verify_traveler_information", "Ann", "Lee", "1990-1-1", "us1")
	p.want(`AttributeError: 'int' object has no attribute 'startswith'`, "verify_traveler_information", "Ann", "Lee", "1990-1-1", int64(5))
	p.want(`{"verification_status": false, "verification_failure": "Invalid date of birth format. Please use YYYY-MM-DD."}`,
		"verify_traveler_information", "Ann", "Lee", "1990-02-30", "US1")
	p.want(`{"verification_status": false, "verification_failure": "Cannot book flight information for another user.Expected Ann Lee, got None Lee"}`,
		"verify_traveler_information", nil, "Lee", "", "")
}

func TestTravelTokenThatExpired(t *testing.T) {
	p := start(t, "TravelAPI", `{"access_token": "t", "token_expires_in": 0}`)
	p.want(`{"status": false}`, "travel_get_login_status")
	p.want(`{"booking_status": false, "error": "Token expired"}`, "book_flight", "t", "", "", "", "", "")
	p.want(`{"cancel_status": false, "error": "Token expired"}`, "cancel_booking", "t", "")
	p.want(`{"insurance_status": false, "error": "Token expired"}`, "purchase_insurance", "t", "", "", "", "")
	for _, method := range []string{"get_booking_history", "retrieve_invoice"} {
		p.want(`{"error": "Token expired"}`, method, "t")
	}
	p.want(`{"error": "Token expired"}`, "set_budget_limit", "t", int64(1))
	p.want(`{"error": "Token expired"}`, "register_credit_card", "t", "", "", "", "")
}

func TestTravelLongContext(t *testing.T) {
	constants := smallLong(t)
	PrepareLong(constants)
	p := startLong(t, "TravelAPI", `{"credit_card_list": {"c1": {"balance": 700}}, "access_token": "t", "token_expires_in": 1}`, constants)
	p.want(`{"credit_card_list": {"c1": {"balance": 700}, "c2": {"balance": 500}}}`, "get_all_credit_cards")
	p.want(`{"cancel_status": true}`, "cancel_booking", "t", "b1")
	p.want(`{"booking_id": "3426812", "transaction_id": "45451592", "booking_status": true, "booking_history": {"3426812": {"card_id": "c2", `+
		`"travel_date": "2024-11-16", "travel_from": "SFO", "travel_to": "LAX", "travel_class": "economy", "travel_cost": 200.0, `+
		`"transaction_id": "45451592"}}}`, "book_flight", "t", "c2", "2024-11-16", "SFO", "LAX", "economy")
	p.want(`{"credit_card_list": {"c1": {"balance": 704.5}, "c2": {"balance": 300.0}}}`, "get_all_credit_cards")
	other := startLong(t, "TravelAPI", "", constants)
	other.want(`{"credit_card_list": {"c1": {"balance": 10.0}, "c2": {"balance": 500}}}`, "get_all_credit_cards") // untouched by p
	if got := p.it.Private()[0].Value; got != int64(len(flights)) {
		t.Errorf("priced flights: got %v, want all %d", got, len(flights))
	}
}
