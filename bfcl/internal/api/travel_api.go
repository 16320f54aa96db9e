package api

import "rcgrpo/bfcl/internal/py"

const (
	travelAuthenticate = iota
	travelBook
	travelCancel
	travelExchange
	travelSupport
	travelCards
	travelHistory
	travelFiscalYear
	travelBalance
	travelCost
	travelNearest
	travelAirports
	travelInsure
	travelRegister
	travelInvoice
	travelLimit
	travelLoginStatus
	travelVerify
)

var travelMethods = []Method{
	travelAuthenticate: {"authenticate_travel", []Param{Required("client_id"), Required("client_secret"),
		Required("refresh_token"),
		Required("grant_type"), Required("user_first_name"), Required("user_last_name")}},
	travelBook: {"book_flight", []Param{Required("access_token"), Required("card_id"), Required("travel_date"),
		Required("travel_from"), Required("travel_to"), Required("travel_class")}},
	travelCancel: {"cancel_booking", []Param{Required("access_token"), Required("booking_id")}},
	travelExchange: {"compute_exchange_rate", []Param{Required("base_currency"),
		Required("target_currency"), Required("value")}},
	travelSupport: {"contact_customer_support", []Param{Required("booking_id"), Required("message")}},
	travelCards:   {"get_all_credit_cards", nil},
	travelHistory: {"get_booking_history", []Param{Required("access_token")}},
	travelFiscalYear: {"get_budget_fiscal_year",
		[]Param{Optional("lastModifiedAfter", nil), Optional("includeRemoved", nil)}},
	travelBalance: {"get_credit_card_balance", []Param{Required("access_token"), Required("card_id")}},
	travelCost: {"get_flight_cost", []Param{Required("travel_from"), Required("travel_to"),
		Required("travel_date"), Required("travel_class")}},
	travelNearest:  {"get_nearest_airport_by_city", []Param{Required("location")}},
	travelAirports: {"list_all_airports", nil},
	travelInsure: {"purchase_insurance", []Param{Required("access_token"), Required("insurance_type"),
		Required("booking_id"),
		Required("insurance_cost"), Required("card_id")}},
	travelRegister: {"register_credit_card", []Param{Required("access_token"), Required("card_number"),
		Required("expiration_date"),
		Required("cardholder_name"), Required("card_verification_number")}},
	travelInvoice: {"retrieve_invoice", []Param{Required("access_token"), Optional("booking_id", nil),
		Optional("insurance_id", nil)}},
	travelLimit:       {"set_budget_limit", []Param{Required("access_token"), Required("budget_limit")}},
	travelLoginStatus: {"travel_get_login_status", nil},
	travelVerify: {"verify_traveler_information",
		[]Param{Required("first_name"), Required("last_name"), Required("date_of_birth"), Required("passport_number")}},
}

const travelSeed = 141053

// travelAPI implements TravelAPI (bfcl/SPEC.md 13.7).
type travelAPI struct {
	shared *Shared // only its constants are used, so clones share it
	long   bool
	random *py.Random

	cards, bookings         py.Value // id -> record
	token, tokenType, scope py.Value
	expiresIn               py.Value // 0 once the token has expired
	firstName, lastName     py.Value // of the authenticated user
	limit                   py.Value // budget limit, or None
	priced                  int64    // flights that the last get_flight_cost added to its private table
}

func newTravelAPI() Instance { return &travelAPI{} }

// Load appends the cards and bookings of long context to those of the scenario.
func (a *travelAPI) Load(scenario *py.Dict, s *Shared, longContext bool) error {
	a.shared, a.long = s, longContext
	var err error
	if a.random, err = seeded(scenario, travelSeed); err != nil {
		return err
	}
	a.cards = setting(scenario, "credit_card_list", &py.Dict{})
	a.bookings = setting(scenario, "booking_record", &py.Dict{})
	a.token = setting(scenario, "access_token", nil)
	a.tokenType = setting(scenario, "token_type", nil)
	a.expiresIn = setting(scenario, "token_expires_in", nil)
	a.scope = setting(scenario, "token_scope", nil)
	a.firstName = setting(scenario, "user_first_name", nil)
	a.lastName = setting(scenario, "user_last_name", nil)
	a.limit = setting(scenario, "budget_limit", nil)
	if !longContext {
		return nil
	}
	if err := s.require("BOOKING_RECORD_EXTENSION", "CREDIT_CARD_EXTENSION"); err != nil {
		return err
	}
	if err := extend(a.cards, s.constant("CREDIT_CARD_EXTENSION")); err != nil {
		return err
	}
	return extend(a.bookings, s.constant("BOOKING_RECORD_EXTENSION"))
}

// extend adds the entries of more whose keys are not in table.
func extend(table, more py.Value) error {
	from, err := asDict(more, "items")
	if err != nil {
		return err
	}
	for i := range from.Len() {
		key, record := from.At(i)
		known, err := py.Contains(table, key)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		if err := py.SetItem(table, key, record); err != nil {
			return err
		}
	}
	return nil
}

func (a *travelAPI) State() []Attr {
	return []Attr{{"credit_card_list", a.cards}, {"booking_record", a.bookings}, {"access_token", a.token},
		{"token_type", a.tokenType}, {"token_expires_in", a.expiresIn}, {"token_scope", a.scope},
		{"user_first_name", a.firstName}, {"user_last_name", a.lastName}, {"budget_limit", a.limit}, {"long_context", a.long}}
}

func (a *travelAPI) Private() []Attr { return []Attr{{"_flight_cost_lookup_size", a.priced}} }

func (a *travelAPI) Clone(m *py.Memo) Instance {
	return &travelAPI{shared: a.shared, long: a.long, random: a.random.Clone(), cards: py.Clone(a.cards, m),
		bookings: py.Clone(a.bookings, m), token: py.Clone(a.token, m), tokenType: py.Clone(a.tokenType, m),
		scope: py.Clone(a.scope, m), expiresIn: py.Clone(a.expiresIn, m), firstName: py.Clone(a.firstName, m),
		lastName: py.Clone(a.lastName, m), limit: py.Clone(a.limit, m), priced: a.priced}
}

func (a *travelAPI) Call(method int, args []py.Value) (py.Value, error) {
	switch method {
	case travelAuthenticate:
		return a.authenticate(args[3], args[4], args[5]), nil
	case travelBook:
		return a.book(args[0], args[1], args[2], args[3], args[4], args[5])
	case travelCancel:
		return a.cancel(args[0], args[1])
	case travelExchange:
		return exchange(args[0], args[1], args[2])
	case travelSupport:
		return a.support(args[0])
	case travelCards:
		return py.NewDict("credit_card_list", a.cards), nil
	case travelHistory:
		if problem := a.refuse(args[0]); problem != "" {
			return fault(problem), nil
		}
		return py.NewDict("booking_history", py.Clone(a.bookings, &py.Memo{})), nil
	case travelFiscalYear:
		return fiscalYear, nil
	case travelBalance:
		return a.balance(args[0], args[1])
	case travelCost:
		return a.costs(args[0], args[1], args[2], args[3])
	case travelNearest:
		return replyFor(nearestAirports(), args[0], noAirport)
	case travelAirports:
		return allAirports(), nil
	case travelInsure:
		return a.insure(args[0], args[2], args[3], args[4])
	case travelRegister:
		return a.register(args[0], args[1], args[2], args[3], args[4])
	case travelInvoice:
		return a.invoice(args[0], args[1])
	case travelLimit:
		return a.setLimit(args[0], args[1])
	case travelLoginStatus:
		return py.NewDict("status", a.expiresIn != nil && !py.Equal(a.expiresIn, int64(0))), nil
	case travelVerify:
		return a.verify(args[0], args[1], args[2], args[3])
	}
	return nil, noMethod(method)
}

var (
	fiscalYear   = fixed("budget_fiscal_year", "2018")
	travelThanks = fixed("customer_support_message",
		"Thank you for contacting customer support. Your message has been received and we will get back to you shortly.")
	travelNoBooking = fixed("error", "Booking not found")
	travelNoToken   = fixed("error", "Token not initialized")
	travelCardTaken = fixed("error", "Card already registered")
	travelCancelled = fixed("cancel_status", true)
	travelVerified  = fixed("verification_status", true)
	travelBadBirth  = fixed("verification_status", false, "verification_failure",
		"Invalid date of birth format. Please use YYYY-MM-DD.")
	travelMinor = fixed("verification_status", false, "verification_failure",
		"Traveler must be at least 18 years old.")
	travelForeign = fixed("verification_status", false, "verification_failure",
		"Passport must be issued by the United States.")
)
