package api

import (
	"strconv"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

// tokenProblem returns the error of a token, or "" if it is valid. A token that was never set is not
// expired.
func (a *travelAPI) tokenProblem(token py.Value) string {
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

// drawNumber draws a number from low to high, and returns it as a string.
func (a *travelAPI) drawNumber(low, high int64) string {
	return strconv.FormatInt(a.random.RandInt(low, high), 10)
}

// authenticate always succeeds and replaces the token.
func (a *travelAPI) authenticate(args []py.Value) py.Value {
	grant := args[3]
	a.expiresIn = int64(2)
	a.token = a.drawNumber(100000, 999999)
	a.tokenType = "Bearer"
	a.scope = grant
	a.firstName, a.lastName = args[4], args[5]
	return py.NewDict("expires_in", int64(2), "access_token", a.token, "token_type", "Bearer", "scope", grant)
}

func (a *travelAPI) status() py.Value {
	return py.NewDict("status", a.expiresIn != nil && !py.Equal(a.expiresIn, int64(0)))
}

func (a *travelAPI) listCards() py.Value {
	return py.NewDict("credit_card_list", a.cards)
}

func (a *travelAPI) history(token py.Value) py.Value {
	if problem := a.tokenProblem(token); problem != "" {
		return errorReply(problem)
	}
	return py.NewDict("booking_history", py.Clone(a.bookings, &py.Memo{}))
}

func (a *travelAPI) fiscalYear(_, _ py.Value) py.Value {
	return py.NewDict("budget_fiscal_year", "2018")
}

func (a *travelAPI) nearest(city py.Value) py.Value {
	return replyFor("nearest_airport", nearestAirports, city, "Unknown")
}

func (a *travelAPI) airports() py.Value {
	codes := make([]py.Value, len(airportCodes))
	for i, code := range airportCodes {
		codes[i] = code
	}
	return py.NewList(codes...)
}

// register compares the card's number with the ids of cards, as Python does, so it hardly ever
// finds a duplicate.
func (a *travelAPI) register(args []py.Value) py.Value {
	token, number, expires, holder, verification := args[0], args[1], args[2], args[3], args[4]
	if a.expiresIn == nil {
		return errorReply("Token not initialized")
	}
	if problem := a.tokenProblem(token); problem != "" {
		return errorReply(problem)
	}
	if try(py.Contains(a.cards, number)) {
		return errorReply("Card already registered")
	}
	id := a.drawNumber(100000000000, 999999999999)
	check(py.SetItem(a.cards, id, py.NewDict("card_number", number, "expiration_date", expires,
		"cardholder_name", holder, "card_verification_number", verification,
		"balance", a.random.RandInt(10000, 99999))))
	return py.NewDict("card_id", id)
}

func (a *travelAPI) balance(token, card py.Value) py.Value {
	if problem := a.tokenProblem(token); problem != "" {
		return errorReply(problem)
	}
	if !try(py.Contains(a.cards, card)) {
		cards := asDict(a.cards, "keys")
		return errorReply("Card not registered. Here are a list of card_id's: " + py.Repr(py.NewList(cards.Keys()...)))
	}
	return py.NewDict("card_balance", field(try(py.GetItem(a.cards, card)), "balance"))
}

// charge changes the balance of a card by amount: "-" pays, "+" refunds.
func (a *travelAPI) charge(card py.Value, operator string, amount py.Value) {
	record := try(py.GetItem(a.cards, card))
	check(py.SetItem(record, "balance", inPlace(operator, field(record, "balance"), amount)))
}

// costs returns the cost of a flight; in long context the costs of all flights on this day in this
// class.
func (a *travelAPI) costs(from, to, date, class py.Value) py.Value {
	cost, multiplier, refusal := flightCost(from, to, date, class)
	if refusal != "" {
		panic(py.Raise("ValueError", "%s", refusal))
	}
	if a.longContext {
		a.priced = int64(len(flights))
		costs := make([]py.Value, len(flights))
		for i, f := range flights {
			costs[i] = float64(f.base * multiplier)
		}
		return py.NewDict("travel_cost_list", py.NewList(costs...))
	}
	a.priced = 1
	return py.NewDict("travel_cost_list", py.NewList(cost))
}

// flightCost returns the cost of a flight and the factor of the base cost: 1, 2 or 5 by class,
// doubled by a date with an even digit sum. The date is not validated.
func flightCost(from, to, date, class py.Value) (cost float64, multiplier int, refusal string) {
	for _, airport := range []py.Value{from, to} {
		check(py.Hashable(airport))
	}
	a, _ := from.(string)
	b, _ := to.(string)
	base, ok := flightBase()[[2]string{a, b}]
	if !ok {
		return 0, 0, "No available route for the given airports."
	}
	switch class {
	case "economy":
		multiplier = 1
	case "business":
		multiplier = 2
	case "first":
		multiplier = 5
	default:
		return 0, 0, "Invalid travel class. Options are: economy, business, first."
	}
	if !oddDigitSum(date) {
		multiplier *= 2
	}
	return float64(base * multiplier), multiplier, ""
}

// oddDigitSum reports whether the digits of a string, or of a list of strings, have an odd sum.
func oddDigitSum(date py.Value) bool {
	var sum py.Value = int64(0)
	for _, part := range try(py.Iterate(date)) {
		if text := receiver[string](part, "isdigit"); py.IsDigit(text) {
			sum = try(py.Add(sum, try(py.Int(text))))
		}
	}
	return py.Truthy(try(py.Mod(sum, int64(2))))
}

const bookingStatus = "booking_status"

// book checks its arguments, charges the card and stores the booking. It compares the budget limit
// with the balance of the card, not with the cost.
func (a *travelAPI) book(args []py.Value) py.Value {
	token, card, date, from, to, class := args[0], args[1], args[2], args[3], args[4], args[5]
	if problem := a.tokenProblem(token); problem != "" {
		return denied(bookingStatus, problem)
	}
	if !try(py.Contains(a.cards, card)) {
		return denied(bookingStatus, "Card not registered")
	}
	record := try(py.GetItem(a.cards, card))
	if !try(py.Contains(record, "balance")) {
		return denied(bookingStatus, "Balance not found")
	}
	cost, refusal := bookingCost(date, from, to, class)
	if refusal != "" {
		return denied(bookingStatus, refusal)
	}
	a.priced = 1
	if a.longContext {
		a.priced = int64(len(flights))
	}
	if refusal = a.balanceProblem(record, cost); refusal != "" {
		return denied(bookingStatus, refusal)
	}
	a.charge(card, "-", cost)
	booking, transaction := a.drawNumber(1000000, 9999999), a.drawNumber(10000000, 99999999)
	check(py.SetItem(a.bookings, booking, py.NewDict("card_id", card, "travel_date", date, "travel_from", from,
		"travel_to", to, "travel_class", class, "travel_cost", cost, "transaction_id", transaction)))
	var history py.Value = &py.Dict{}
	if a.longContext {
		history = a.bookings
	}
	return py.NewDict("booking_id", booking, "transaction_id", transaction, bookingStatus, true,
		"booking_history", history)
}

// bookingCost returns the cost of a flight, or the reason for a refusal.
func bookingCost(date, from, to, class py.Value) (cost float64, refusal string) {
	if !isAirport(from) {
		return 0, "Invalid departure airport code: " + py.Str(from)
	}
	if !isAirport(to) {
		return 0, "Invalid destination airport code: " + py.Str(to)
	}
	_, err := py.ParseDate(date)
	if py.IsException(err, "ValueError") {
		return 0, "Invalid date format. Use YYYY-MM-DD."
	}
	check(err)
	if class != "economy" && class != "business" && class != "first" {
		check(py.Hashable(class))
		return 0, "Invalid travel class. Must be one of {'economy', 'business', 'first'}" // a Python set
	}
	cost, _, refusal = flightCost(from, to, date, class)
	return cost, refusal
}

// balanceProblem returns the reason why a card cannot pay cost, or "".
func (a *travelAPI) balanceProblem(card py.Value, cost float64) string {
	balance := field(card, "balance")
	switch {
	case try(py.Compare("<", balance, cost)):
		return "Insufficient funds"
	case a.limit != nil && try(py.Compare("<", balance, a.limit)):
		return "Balance is less than budget limit"
	}
	return ""
}

// cancel refunds a booking to its card and deletes it.
func (a *travelAPI) cancel(token, booking py.Value) py.Value {
	const status = "cancel_status"
	if problem := a.tokenProblem(token); problem != "" {
		return denied(status, problem)
	}
	record, known := a.booking(booking)
	if !known {
		return denied(status, "Booking not found")
	}
	a.charge(field(record, "card_id"), "+", field(record, "travel_cost"))
	bookings, ok := a.bookings.(*py.Dict)
	if !ok {
		panic(py.Raise("TypeError", "'%s' object doesn't support item deletion", py.TypeName(a.bookings)))
	}
	bookings.Delete(booking)
	return py.NewDict(status, true)
}

// booking returns the record of a booking, and whether there is one.
func (a *travelAPI) booking(id py.Value) (record py.Value, known bool) {
	if !try(py.Contains(a.bookings, id)) {
		return nil, false
	}
	return try(py.GetItem(a.bookings, id)), true
}

// invoiceFields are the fields that an invoice copies from its booking.
var invoiceFields = []string{"travel_date", "travel_from", "travel_to", "travel_class", "travel_cost", "transaction_id"}

func (a *travelAPI) invoice(token, id, _ py.Value) py.Value {
	if problem := a.tokenProblem(token); problem != "" {
		return errorReply(problem)
	}
	record, known := a.booking(id)
	if !known {
		return errorReply("Booking not found")
	}
	invoice := py.MakeDict(1 + len(invoiceFields))
	invoice.Set("booking_id", id)
	for _, name := range invoiceFields {
		invoice.Set(name, field(record, name))
	}
	return py.NewDict("invoice", invoice)
}

func (a *travelAPI) support(booking, _ py.Value) py.Value {
	if !try(py.Contains(a.bookings, booking)) {
		return errorReply("Booking not found")
	}
	return py.NewDict("customer_support_message",
		"Thank you for contacting customer support. Your message has been received "+
			"and we will get back to you shortly.")
}

// insure charges the card without checking its balance.
func (a *travelAPI) insure(args []py.Value) py.Value {
	token, booking, cost, card := args[0], args[2], args[3], args[4]
	const status = "insurance_status"
	if problem := a.tokenProblem(token); problem != "" {
		return denied(status, problem)
	}
	if a.limit != nil && try(py.Compare("<", a.limit, cost)) {
		return denied(status, "Exceeded budget limit")
	}
	if !try(py.Contains(a.bookings, booking)) {
		return denied(status, "Booking not found")
	}
	if !try(py.Contains(a.cards, card)) {
		return denied(status, "Credit card not registered")
	}
	a.charge(card, "-", cost)
	return py.NewDict("insurance_id", a.drawNumber(100000000, 999999999), status, true)
}

func (a *travelAPI) setLimit(token, limit py.Value) py.Value {
	if problem := a.tokenProblem(token); problem != "" {
		return errorReply(problem)
	}
	a.limit = try(py.Float(limit))
	return py.NewDict("budget_limit", a.limit)
}

// exchange converts from US dollars, or to US dollars with rounding to cents.
func (a *travelAPI) exchange(base, target, value py.Value) py.Value {
	for _, rate := range exchangeRates {
		switch {
		case base == "USD" && target == rate.currency:
			amount := try(py.Mul(value, rate.perDollar))
			return py.NewDict("exchanged_value", try(py.Float(amount)))
		case base == rate.currency && target == "USD":
			amount := try(py.TrueDiv(value, rate.perDollar))
			return py.NewDict("exchanged_value", try(py.Round(amount, int64(2))))
		}
	}
	panic(py.Raise("ValueError", "No available exchange rate for the given currencies."))
}

// verify compares names with the authenticated user's, and requires an age of 18 today and a
// passport of the United States.
func (a *travelAPI) verify(firstName, lastName, birth, passport py.Value) py.Value {
	if !py.Equal(a.firstName, firstName) || !py.Equal(a.lastName, lastName) {
		return unverified("Cannot book flight information for another user.Expected " + py.Str(a.firstName) + " " +
			py.Str(a.lastName) + ", got " + py.Str(firstName) + " " + py.Str(lastName))
	}
	born, err := py.ParseDate(birth)
	if py.IsException(err, "ValueError") {
		return unverified("Invalid date of birth format. Please use YYYY-MM-DD.")
	}
	check(err)
	year, month, day := a.shared.Today.Date()
	age := year - born.Year()
	if month < born.Month() || month == born.Month() && day < born.Day() {
		age--
	}
	if age < 18 {
		return unverified("Traveler must be at least 18 years old.")
	}
	if !strings.HasPrefix(receiver[string](passport, "startswith"), "US") {
		return unverified("Passport must be issued by the United States.")
	}
	return py.NewDict("verification_status", true)
}

func unverified(reason string) py.Value {
	return py.NewDict("verification_status", false, "verification_failure", reason)
}
