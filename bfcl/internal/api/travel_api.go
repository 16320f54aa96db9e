package api

import "rcgrpo/bfcl/internal/py"

var travelMethods = []Method{
	onAll("authenticate_travel", (*travelAPI).authenticate,
		Required("client_id"), Required("client_secret"), Required("refresh_token"), Required("grant_type"),
		Required("user_first_name"), Required("user_last_name")),
	onAll("book_flight", (*travelAPI).book,
		Required("access_token"), Required("card_id"), Required("travel_date"), Required("travel_from"),
		Required("travel_to"), Required("travel_class")),
	on2("cancel_booking", (*travelAPI).cancel, Required("access_token"), Required("booking_id")),
	on3("compute_exchange_rate", (*travelAPI).exchange,
		Required("base_currency"), Required("target_currency"), Required("value")),
	on2("contact_customer_support", (*travelAPI).support, Required("booking_id"), Required("message")),
	on0("get_all_credit_cards", (*travelAPI).listCards),
	on1("get_booking_history", (*travelAPI).history, Required("access_token")),
	on2("get_budget_fiscal_year", (*travelAPI).fiscalYear,
		Optional("lastModifiedAfter", nil), Optional("includeRemoved", nil)),
	on2("get_credit_card_balance", (*travelAPI).balance, Required("access_token"), Required("card_id")),
	on4("get_flight_cost", (*travelAPI).costs,
		Required("travel_from"), Required("travel_to"), Required("travel_date"), Required("travel_class")),
	on1("get_nearest_airport_by_city", (*travelAPI).nearest, Required("location")),
	on0("list_all_airports", (*travelAPI).airports),
	onAll("purchase_insurance", (*travelAPI).insure,
		Required("access_token"), Required("insurance_type"), Required("booking_id"),
		Required("insurance_cost"), Required("card_id")),
	onAll("register_credit_card", (*travelAPI).register,
		Required("access_token"), Required("card_number"), Required("expiration_date"),
		Required("cardholder_name"), Required("card_verification_number")),
	on3("retrieve_invoice", (*travelAPI).invoice,
		Required("access_token"), Optional("booking_id", nil), Optional("insurance_id", nil)),
	on2("set_budget_limit", (*travelAPI).setLimit, Required("access_token"), Required("budget_limit")),
	on0("travel_get_login_status", (*travelAPI).status),
	on4("verify_traveler_information", (*travelAPI).verify,
		Required("first_name"), Required("last_name"), Required("date_of_birth"),
		Required("passport_number")),
}

const travelSeed = 141053

// travelAPI implements TravelAPI (bfcl/SPEC.md 13.7).
type travelAPI struct {
	shared      *Shared // only its constants are used, so clones share it
	longContext bool
	random      *py.Random

	cards, bookings         py.Value // dicts from id to record
	token, tokenType, scope py.Value
	expiresIn               py.Value // 0 once the token has expired
	firstName, lastName     py.Value // names of the authenticated user
	limit                   py.Value // budget limit, or None
	priced                  int64    // flights that the last get_flight_cost added to its private table
}

func newTravelAPI() Instance { return &travelAPI{} }

// Load appends the cards and bookings of long context to those of the scenario.
func (a *travelAPI) Load(scenario *py.Dict, s *Shared, longContext bool) (err error) {
	defer catch(&err)
	a.shared, a.longContext = s, longContext
	a.random = seeded(scenario, travelSeed)
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
	s.require("BOOKING_RECORD_EXTENSION", "CREDIT_CARD_EXTENSION")
	extend(a.cards, s.ownConstant("CREDIT_CARD_EXTENSION"))
	extend(a.bookings, s.ownConstant("BOOKING_RECORD_EXTENSION"))
	return nil
}

// extend adds the entries of more whose keys are not in table.
func extend(table, more py.Value) {
	from := asDict(more, "items")
	for key, record := range from.All() {
		if !try(py.Contains(table, key)) {
			check(py.SetItem(table, key, record))
		}
	}
}

func (a *travelAPI) State() []Attr {
	return []Attr{{"credit_card_list", a.cards}, {"booking_record", a.bookings}, {"access_token", a.token},
		{"token_type", a.tokenType}, {"token_expires_in", a.expiresIn}, {"token_scope", a.scope},
		{"user_first_name", a.firstName}, {"user_last_name", a.lastName}, {"budget_limit", a.limit},
		{"long_context", a.longContext}}
}

func (a *travelAPI) Private() []Attr { return []Attr{{"_flight_cost_lookup_size", a.priced}} }

func (a *travelAPI) Clone(m *py.Memo) Instance {
	return &travelAPI{shared: a.shared, longContext: a.longContext, random: a.random.Clone(), cards: py.Clone(a.cards, m),
		bookings: py.Clone(a.bookings, m), token: py.Clone(a.token, m), tokenType: py.Clone(a.tokenType, m),
		scope: py.Clone(a.scope, m), expiresIn: py.Clone(a.expiresIn, m), firstName: py.Clone(a.firstName, m),
		lastName: py.Clone(a.lastName, m), limit: py.Clone(a.limit, m), priced: a.priced}
}
