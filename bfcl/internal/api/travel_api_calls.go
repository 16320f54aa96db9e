package api

import (
	"strconv"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// refuse returns the error of a token, or "" if it is valid. A token that was never set is not
// expired.
func (a *travelAPI) refuse(token py.Value) string {
	switch {
	case py.Equal(a.expiresIn, int64(0)):
		return "Token expired"
	case !py.Equal(token, a.token):
		return "Invalid access token"
	}
	return ""
}

// denied returns the reply {status: False, "error": problem}.
func denied(status, problem string) py.Value { return py.NewDict(status, false, "error", problem) }

// number draws a number between low and high as a string.
func (a *travelAPI) number(low, high int64) string {
	return strconv.FormatInt(a.random.RandInt(low, high), 10)
}

// authenticate always succeeds and replaces the token.
func (a *travelAPI) authenticate(args []py.Value) (py.Value, error) {
	grant := args[3]
	a.expiresIn = int64(2)
	a.token = a.number(100000, 999999)
	a.tokenType = "Bearer"
	a.scope = grant
	a.firstName, a.lastName = args[4], args[5]
	return py.NewDict("expires_in", int64(2), "access_token", a.token, "token_type", "Bearer", "scope", grant), nil
}

func (a *travelAPI) status() (py.Value, error) {
	return py.NewDict("status", a.expiresIn != nil && !py.Equal(a.expiresIn, int64(0))), nil
}

func (a *travelAPI) listCards() (py.Value, error) {
	return py.NewDict("credit_card_list", a.cards), nil
}

func (a *travelAPI) history(token py.Value) (py.Value, error) {
	if problem := a.refuse(token); problem != "" {
		return fault(problem), nil
	}
	return py.NewDict("booking_history", py.Clone(a.bookings, &py.Memo{})), nil
}

func (a *travelAPI) fiscalYear(_, _ py.Value) (py.Value, error) {
	return py.NewDict("budget_fiscal_year", "2018"), nil
}

func (a *travelAPI) nearest(city py.Value) (py.Value, error) {
	return replyFor("nearest_airport", nearestAirports, city, "Unknown")
}

func (a *travelAPI) airports() (py.Value, error) {
	codes := make([]py.Value, len(airportCodes))
	for i, code := range airportCodes {
		codes[i] = code
	}
	return py.NewList(codes...), nil
}

// register compares the card's number with the ids of cards, as Python does, so it hardly ever
// finds a duplicate.
func (a *travelAPI) register(args []py.Value) (py.Value, error) {
	token, number, expires, holder, verification := args[0], args[1], args[2], args[3], args[4]
	if a.expiresIn == nil {
		return fault("Token not initialized"), nil
	}
	if problem := a.refuse(token); problem != "" {
		return fault(problem), nil
	}
	known, err := py.Contains(a.cards, number)
	if err != nil {
		return nil, err
	}
	if known {
		return fault("Card already registered"), nil
	}
	id := a.number(100000000000, 999999999999)
	if err := py.SetItem(a.cards, id, py.NewDict("card_number", number, "expiration_date", expires,
		"cardholder_name", holder, "card_verification_number", verification,
		"balance", a.random.RandInt(10000, 99999))); err != nil {
		return nil, err
	}
	return py.NewDict("card_id", id), nil
}

func (a *travelAPI) balance(token, card py.Value) (py.Value, error) {
	if problem := a.refuse(token); problem != "" {
		return fault(problem), nil
	}
	known, err := py.Contains(a.cards, card)
	if err != nil {
		return nil, err
	}
	if !known {
		cards, err := asDict(a.cards, "keys")
		if err != nil {
			return nil, err
		}
		return fault("Card not registered. Here are a list of card_id's: " + py.Repr(py.NewList(cards.Keys()...))), nil
	}
	balance, err := a.cardBalance(card)
	if err != nil {
		return nil, err
	}
	return py.NewDict("card_balance", balance), nil
}

func (a *travelAPI) cardBalance(card py.Value) (py.Value, error) {
	record, err := py.GetItem(a.cards, card)
	if err != nil {
		return nil, err
	}
	return field(record, "balance")
}

// charge changes the balance of a card by amount: "-" pays, "+" refunds.
func (a *travelAPI) charge(card py.Value, operator string, amount py.Value) error {
	record, err := py.GetItem(a.cards, card)
	if err != nil {
		return err
	}
	balance, err := field(record, "balance")
	if err != nil {
		return err
	}
	if balance, err = inPlace(operator, balance, amount); err != nil {
		return err
	}
	return py.SetItem(record, "balance", balance)
}

// costs returns the cost of a flight; in long context the costs of all flights on this day in this
// class.
func (a *travelAPI) costs(from, to, date, class py.Value) (py.Value, error) {
	cost, multiplier, err := flightCost(from, to, date, class)
	if err != nil {
		return nil, err
	}
	if a.long {
		a.priced = int64(len(flights))
		costs := make([]py.Value, len(flights))
		for i, f := range flights {
			costs[i] = float64(f.base * multiplier)
		}
		return py.NewDict("travel_cost_list", py.NewList(costs...)), nil
	}
	a.priced = 1
	return py.NewDict("travel_cost_list", py.NewList(cost)), nil
}

// flightCost returns the cost of a flight and the factor of the base cost: 1, 2 or 5 by class,
// doubled by a date with an even digit sum. The date is not validated.
func flightCost(from, to, date, class py.Value) (cost float64, multiplier int, err error) {
	for _, airport := range []py.Value{from, to} {
		if err := py.Hashable(airport); err != nil {
			return 0, 0, err
		}
	}
	a, _ := from.(string)
	b, _ := to.(string)
	base, ok := flightBase()[[2]string{a, b}]
	if !ok {
		return 0, 0, py.Raise("ValueError", "No available route for the given airports.")
	}
	switch class {
	case "economy":
		multiplier = 1
	case "business":
		multiplier = 2
	case "first":
		multiplier = 5
	default:
		return 0, 0, py.Raise("ValueError", "Invalid travel class. Options are: economy, business, first.")
	}
	odd, err := oddDigitSum(date)
	if err != nil {
		return 0, 0, err
	}
	if !odd {
		multiplier *= 2
	}
	return float64(base * multiplier), multiplier, nil
}

// oddDigitSum reports whether the digits of a string, or of a list of strings, have an odd sum.
func oddDigitSum(date py.Value) (bool, error) {
	if text, ok := date.(string); ok {
		if odd, plain := oddASCIIDigitSum(text); plain {
			return odd, nil
		}
	}
	parts, err := py.Iterate(date)
	if err != nil {
		return false, err
	}
	var sum py.Value = int64(0)
	for _, part := range parts {
		text, ok := part.(string)
		if !ok {
			return false, py.AttributeError(part, "isdigit")
		}
		if !py.IsDigit(text) {
			continue
		}
		number, err := py.Int(text)
		if err != nil {
			return false, err
		}
		if sum, err = py.Add(sum, number); err != nil {
			return false, err
		}
	}
	rest, err := py.Mod(sum, int64(2))
	return py.Truthy(rest), err
}

// oddASCIIDigitSum is oddDigitSum of a string; plain is false if it is not ASCII.
func oddASCIIDigitSum(s string) (odd, plain bool) {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 0x80:
			return false, false
		case c >= '0' && c <= '9' && c&1 == 1:
			odd = !odd
		}
	}
	return odd, true
}

const bookingStatus = "booking_status"

// book checks its arguments, charges the card and stores the booking. It compares the budget limit
// with the balance of the card, not with the cost.
func (a *travelAPI) book(args []py.Value) (py.Value, error) {
	token, card, date, from, to, class := args[0], args[1], args[2], args[3], args[4], args[5]
	if problem := a.refuse(token); problem != "" {
		return denied(bookingStatus, problem), nil
	}
	known, err := py.Contains(a.cards, card)
	if err != nil {
		return nil, err
	}
	if !known {
		return denied(bookingStatus, "Card not registered"), nil
	}
	record, err := py.GetItem(a.cards, card)
	if err != nil {
		return nil, err
	}
	if known, err = py.Contains(record, "balance"); err != nil {
		return nil, err
	}
	if !known {
		return denied(bookingStatus, "Balance not found"), nil
	}
	cost, refusal, err := quote(date, from, to, class)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return denied(bookingStatus, refusal), nil
	}
	a.priced = 1
	if a.long {
		a.priced = int64(len(flights))
	}
	if refusal, err = a.tooPoor(record, cost); err != nil {
		return nil, err
	}
	if refusal != "" {
		return denied(bookingStatus, refusal), nil
	}
	if err := a.charge(card, "-", cost); err != nil {
		return nil, err
	}
	booking, transaction := a.number(1000000, 9999999), a.number(10000000, 99999999)
	if err := py.SetItem(a.bookings, booking, py.NewDict("card_id", card, "travel_date", date, "travel_from", from,
		"travel_to", to, "travel_class", class, "travel_cost", cost, "transaction_id", transaction)); err != nil {
		return nil, err
	}
	var history py.Value = &py.Dict{}
	if a.long {
		history = a.bookings
	}
	return py.NewDict("booking_id", booking, "transaction_id", transaction, bookingStatus, true,
		"booking_history", history), nil
}

// quote returns the cost of a flight, or the reason for a refusal.
func quote(date, from, to, class py.Value) (cost float64, refusal string, err error) {
	if !isAirport(from) {
		return 0, "Invalid departure airport code: " + py.Str(from), nil
	}
	if !isAirport(to) {
		return 0, "Invalid destination airport code: " + py.Str(to), nil
	}
	if _, err := py.ParseDate(date); err != nil {
		if py.IsException(err, "ValueError") {
			return 0, "Invalid date format. Use YYYY-MM-DD.", nil
		}
		return 0, "", err
	}
	if class != "economy" && class != "business" && class != "first" {
		if err := py.Hashable(class); err != nil {
			return 0, "", err
		}
		return 0, "Invalid travel class. Must be one of {'economy', 'business', 'first'}", nil // a Python set
	}
	cost, _, err = flightCost(from, to, date, class)
	if py.IsException(err, "ValueError") {
		return 0, py.AsException(err).Message, nil
	}
	return cost, "", err
}

// tooPoor returns the reason why a card cannot pay cost, or "".
func (a *travelAPI) tooPoor(card py.Value, cost float64) (string, error) {
	balance, err := field(card, "balance")
	if err != nil {
		return "", err
	}
	short, err := py.Compare("<", balance, cost)
	if err != nil {
		return "", err
	}
	if short {
		return "Insufficient funds", nil
	}
	if a.limit == nil {
		return "", nil
	}
	below, err := py.Compare("<", balance, a.limit)
	if err != nil || !below {
		return "", err
	}
	return "Balance is less than budget limit", nil
}

// cancel refunds a booking to its card and deletes it.
func (a *travelAPI) cancel(token, booking py.Value) (py.Value, error) {
	const status = "cancel_status"
	if problem := a.refuse(token); problem != "" {
		return denied(status, problem), nil
	}
	record, known, err := a.booking(booking)
	if err != nil {
		return nil, err
	}
	if !known {
		return denied(status, "Booking not found"), nil
	}
	card, err := field(record, "card_id")
	if err != nil {
		return nil, err
	}
	cost, err := field(record, "travel_cost")
	if err != nil {
		return nil, err
	}
	if err := a.charge(card, "+", cost); err != nil {
		return nil, err
	}
	bookings, ok := a.bookings.(*py.Dict)
	if !ok {
		return nil, py.Raise("TypeError", "'%s' object doesn't support item deletion", py.TypeName(a.bookings))
	}
	bookings.Delete(booking)
	return py.NewDict("cancel_status", true), nil
}

// booking returns the record of a booking.
func (a *travelAPI) booking(id py.Value) (record py.Value, known bool, err error) {
	if known, err = py.Contains(a.bookings, id); !known || err != nil {
		return nil, false, err
	}
	record, err = py.GetItem(a.bookings, id)
	return record, true, err
}

// invoiceFields are the fields that an invoice copies from its booking.
var invoiceFields = []string{"travel_date", "travel_from", "travel_to", "travel_class", "travel_cost", "transaction_id"}

func (a *travelAPI) invoice(token, id, _ py.Value) (py.Value, error) {
	if problem := a.refuse(token); problem != "" {
		return fault(problem), nil
	}
	record, known, err := a.booking(id)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Booking not found"), nil
	}
	invoice := py.MakeDict(1 + len(invoiceFields))
	invoice.SetStr("booking_id", id)
	for _, name := range invoiceFields {
		v, err := field(record, name)
		if err != nil {
			return nil, err
		}
		invoice.SetStr(name, v)
	}
	return py.NewDict("invoice", invoice), nil
}

func (a *travelAPI) support(booking, _ py.Value) (py.Value, error) {
	known, err := py.Contains(a.bookings, booking)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Booking not found"), nil
	}
	return py.NewDict("customer_support_message",
		"Thank you for contacting customer support. Your message has been received "+
			"and we will get back to you shortly."), nil
}

// insure charges the card without checking its balance.
func (a *travelAPI) insure(args []py.Value) (py.Value, error) {
	token, booking, cost, card := args[0], args[2], args[3], args[4]
	const status = "insurance_status"
	if problem := a.refuse(token); problem != "" {
		return denied(status, problem), nil
	}
	if a.limit != nil {
		over, err := py.Compare("<", a.limit, cost)
		if err != nil {
			return nil, err
		}
		if over {
			return denied(status, "Exceeded budget limit"), nil
		}
	}
	known, err := py.Contains(a.bookings, booking)
	if err != nil {
		return nil, err
	}
	if !known {
		return denied(status, "Booking not found"), nil
	}
	if known, err = py.Contains(a.cards, card); err != nil {
		return nil, err
	}
	if !known {
		return denied(status, "Credit card not registered"), nil
	}
	if err := a.charge(card, "-", cost); err != nil {
		return nil, err
	}
	return py.NewDict("insurance_id", a.number(100000000, 999999999), status, true), nil
}

func (a *travelAPI) setLimit(token, limit py.Value) (py.Value, error) {
	if problem := a.refuse(token); problem != "" {
		return fault(problem), nil
	}
	limit, err := py.Float(limit)
	if err != nil {
		return nil, err
	}
	a.limit = limit
	return py.NewDict("budget_limit", limit), nil
}

// exchange converts from US dollars, or to US dollars with rounding to cents.
func (a *travelAPI) exchange(base, target, value py.Value) (py.Value, error) {
	for _, rate := range exchangeRates {
		var amount py.Value
		var err error
		switch {
		case base == "USD" && target == rate.currency:
			if amount, err = py.Mul(value, rate.perDollar); err == nil {
				amount, err = py.Float(amount)
			}
		case base == rate.currency && target == "USD":
			if amount, err = py.TrueDiv(value, rate.perDollar); err == nil {
				amount, err = py.Round(amount, int64(2))
			}
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		return py.NewDict("exchanged_value", amount), nil
	}
	return nil, py.Raise("ValueError", "No available exchange rate for the given currencies.")
}

// verify compares names with the authenticated user's, and requires an age of 18 today and a
// passport of the United States.
func (a *travelAPI) verify(firstName, lastName, birth, passport py.Value) (py.Value, error) {
	if !py.Equal(a.firstName, firstName) || !py.Equal(a.lastName, lastName) {
		return unverified("Cannot book flight information for another user.Expected " + py.Str(a.firstName) + " " +
			py.Str(a.lastName) + ", got " + py.Str(firstName) + " " + py.Str(lastName)), nil
	}
	born, err := py.ParseDate(birth)
	if py.IsException(err, "ValueError") {
		return unverified("Invalid date of birth format. Please use YYYY-MM-DD."), nil
	}
	if err != nil {
		return nil, err
	}
	year, month, day := a.shared.Today.Date()
	age := year - born.Year()
	if month < born.Month() || month == born.Month() && day < born.Day() {
		age--
	}
	if age < 18 {
		return unverified("Traveler must be at least 18 years old."), nil
	}
	text, ok := passport.(string)
	if !ok {
		return nil, py.AttributeError(passport, "startswith")
	}
	if !strings.HasPrefix(text, "US") {
		return unverified("Passport must be issued by the United States."), nil
	}
	return py.NewDict("verification_status", true), nil
}

func unverified(reason string) py.Value {
	return py.NewDict("verification_status", false, "verification_failure", reason)
}
