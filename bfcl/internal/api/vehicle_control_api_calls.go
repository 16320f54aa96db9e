package api

import (
	"cmp"
	"math"

	"rcgrpo/bfcl/internal/py"
)

func (v *vehicleControlAPI) log(messages py.Value) py.Value {
	return py.NewDict("log", messages)
}

func (v *vehicleControlAPI) tireShop() py.Value {
	return py.NewDict("shopLocation", "456 Oakwood Avenue, Rivermist, 83214")
}

func (v *vehicleControlAPI) noWeather() py.Value {
	return py.NewDict("error", int64(404))
}

func (v *vehicleControlAPI) speed() py.Value {
	return py.NewDict("currentSpeed", v.random.Uniform(0, 120))
}

// navigate stores the destination even if the reply cannot be built.
func (v *vehicleControlAPI) navigate(destination py.Value) py.Value {
	v.destination = destination
	return py.NewDict("status", try(py.Add("Navigating to ", destination)))
}

// ignite starts the engine. "STOP" stops it, then runs the same checks, so it never reports
// success.
func (v *vehicleControlAPI) ignite(mode py.Value) py.Value {
	if mode == "STOP" {
		v.engine = "stopped"
	}
	if v.unlocked > 0 {
		return v.unlockedDoors()
	}
	if v.pedal != "pressed" {
		return errorReply("Brake pedal needs to be pressed when starting the engine.")
	}
	if !py.Equal(v.pedalForce, 1000.0) {
		return errorReply("Must press the brake fully before starting the engine.")
	}
	switch {
	case try(py.Compare("<", v.fuel, 0.0)):
		return errorReply("Fuel tank is empty.")
	case mode != "START":
		return errorReply("Invalid ignition mode.")
	}
	v.engine = "running"
	return py.NewDict("engineState", v.engine, "fuelLevel", v.fuel, "batteryVoltage", v.battery)
}

func (v *vehicleControlAPI) unlockedDoors() py.Value {
	var open []py.Value
	for door, status := range v.doors.All() {
		if status == "unlocked" {
			open = append(open, door)
		}
	}
	return errorReply("All doors must be locked before starting the engine. Here are the unlocked doors: " + join(open))
}

// tankCapacity is in gallons.
const tankCapacity = int64(50)

func (v *vehicleControlAPI) fill(amount py.Value) py.Value {
	if try(py.Compare("<", amount, int64(0))) {
		return errorReply("Fuel amount cannot be negative.")
	}
	level := try(py.Add(v.fuel, amount))
	if try(py.Compare(">", level, tankCapacity)) {
		return errorReply("Cannot fill gas above the tank capacity.")
	}
	if try(py.Compare("<", level, 0.0)) {
		return errorReply("Fuel tank is empty. Min fuel level is 0 gallons.")
	}
	v.fuel = level
	return py.NewDict("fuelLevel", level)
}

// lock locks or unlocks doors in order; doors before an unknown one stay changed.
func (v *vehicleControlAPI) lock(unlock, doors py.Value) py.Value {
	names := try(py.Iterate(doors))
	status, change := "locked", int64(-1)
	if py.Truthy(unlock) {
		status, change = "unlocked", 1
	}
	for _, name := range names {
		if try(v.doors.Index(name)) != status {
			v.doors.Set(name, status)
			v.unlocked += change
		}
	}
	return py.NewDict("lockStatus", status, "remainingUnlockedDoors", v.unlocked)
}

// adjustClimate stores the temperature in degrees Celsius and replies with the given one.
func (v *vehicleControlAPI) adjustClimate(temperature, unit, fan, mode py.Value) py.Value {
	if !between(fan, int64(0), int64(100)) {
		return errorReply("Fan speed must be between 0 and 100.")
	}
	v.temperature = temperature
	if unit == "fahrenheit" {
		v.temperature = celsius(temperature)
	}
	v.fan, v.climate = fan, mode
	return py.NewDict("currentACTemperature", temperature, "climateMode", mode, "humidityLevel", v.humidity)
}

func celsius(fahrenheit py.Value) py.Value {
	c := try(py.Mul(try(py.Sub(fahrenheit, int64(32))), int64(5)))
	return try(py.TrueDiv(c, int64(9)))
}

func between(v, low, high py.Value) bool {
	return try(py.Compare("<=", low, v)) && try(py.Compare("<=", v, high))
}

// weather draws a temperature. In long context all replies are one object, so replies within one
// expression show the latest temperature.
func (v *vehicleControlAPI) weather() py.Value {
	now := v.random.Uniform(-10, 40)
	if !v.longContext {
		return py.NewDict("outsideTemperature", now)
	}
	if v.week == nil {
		v.week = &py.Dict{}
		if days, ok := v.shared.ownConstant("LONG_WEATHER_EXTENSION").(*py.Dict); ok {
			v.week = days
		}
	}
	v.week.Set("outsideTemperature", now)
	return v.week
}

func (v *vehicleControlAPI) setHeadlights(mode py.Value) py.Value {
	switch mode {
	case "on":
		v.headlights = "on"
	case "off", "auto":
		v.headlights = "off"
	default:
		return errorReply("Invalid headlight mode.")
	}
	return py.NewDict("headlightStatus", v.headlights)
}

func (v *vehicleControlAPI) status(option py.Value) py.Value {
	reply := py.MakeDict(5)
	if v.longContext {
		reply.Set("metadata", v.shared.constant("CAR_STATUS_METADATA_EXTENSION"))
	}
	switch option {
	case "fuel":
		reply.Set("fuelLevel", v.fuel)
	case "battery":
		reply.Set("batteryVoltage", v.battery)
	case "doors":
		reply.Set("doorStatus", v.doors)
	case "climate":
		reply.Set("currentACTemperature", v.temperature)
		reply.Set("fanSpeed", v.fan)
		reply.Set("climateMode", v.climate)
		reply.Set("humidityLevel", v.humidity)
	case "headlights":
		reply.Set("headlightStatus", v.headlights)
	case "parkingBrake":
		reply.Set("parkingBrakeStatus", v.parkingBrake)
		reply.Set("parkingBrakeForce", v.parkingForce)
		reply.Set("slopeAngle", v.slope)
	case "brakePedal":
		reply.Set("brakePedalStatus", v.pedal)
		reply.Set("brakePedalForce", v.pedalForce)
	case "engine":
		reply.Set("engineState", v.engine)
	default:
		reply.Set("error", "Invalid option")
	}
	return reply
}

// activateParkingBrake sets the slope to 10 degrees, engaged or released.
func (v *vehicleControlAPI) activateParkingBrake(mode py.Value) py.Value {
	var status string
	var force float64
	switch mode {
	case "engage":
		status, force = "engaged", 500
	case "release":
		status, force = "released", 0
	default:
		return errorReply("Invalid mode")
	}
	v.parkingBrake, v.parkingForce, v.slope = status, force, 10.0
	reply := py.MakeDict(4)
	if v.longContext {
		reply.Set("parkingBrakeInstruction", v.shared.constant("PARKING_BRAKE_INSTRUCTION"))
	}
	reply.Set("parkingBrakeStatus", v.parkingBrake)
	reply.Set("_parkingBrakeForce", v.parkingForce)
	reply.Set("_slopeAngle", v.slope)
	return reply
}

// press stores the force with the number type of the position and replies with a float.
func (v *vehicleControlAPI) press(position py.Value) py.Value {
	if !between(position, int64(0), int64(1)) {
		return errorReply("Pedal position must be between 0 and 1.")
	}
	if py.Equal(position, int64(0)) {
		return v.release()
	}
	force := try(py.Mul(position, int64(1000)))
	v.pedal, v.pedalForce = "pressed", force
	return py.NewDict("brakePedalStatus", v.pedal, "brakePedalForce", try(py.Float(force)))
}

func (v *vehicleControlAPI) release() py.Value {
	v.pedal, v.pedalForce = "released", 0.0
	return py.NewDict("brakePedalStatus", "released", "brakePedalForce", 0.0)
}

// setCruise stores the distance of an active cruise control before it checks the speed.
func (v *vehicleControlAPI) setCruise(speed, activate, distance py.Value) py.Value {
	distance = try(py.Float(distance))
	speed = try(py.Float(speed))
	if v.engine == "stopped" {
		return errorReply("Start the engine before activating the cruise control.")
	}
	v.distance = distance
	active := py.Truthy(activate)
	if s, ok := speed.(float64); active && (!ok || !(s >= 0 && s <= 120 && math.Mod(s, 5) == 0)) {
		return errorReply("Invalid speed")
	}
	v.cruise = "inactive"
	if active {
		v.cruise = "active"
	}
	return py.NewDict("cruiseStatus", v.cruise, "currentSpeed", speed, "distanceToNextVehicle", distance)
}

const milesPerGallon = 20.0

func (v *vehicleControlAPI) canDrive(distance py.Value) py.Value {
	reach := try(py.Mul(v.fuel, milesPerGallon))
	return py.NewDict("canDrive", !try(py.Compare("<", reach, distance)))
}

func (v *vehicleControlAPI) toLiter(gallon py.Value) py.Value {
	return product("liter", gallon, 3.78541)
}

func (v *vehicleControlAPI) toGallon(liter py.Value) py.Value {
	return product("gallon", liter, 0.264172)
}

// product returns the reply {key: v * factor}.
func product(key string, v py.Value, factor float64) py.Value {
	return py.NewDict(key, try(py.Mul(v, factor)))
}

// checkTires reports healthy tires if their mean pressure is 30 to 35 psi.
func (v *vehicleControlAPI) checkTires() py.Value {
	sum := v.frontLeftTire
	for _, tire := range []py.Value{v.frontRightTire, v.rearLeftTire, v.rearRightTire} {
		sum = try(py.Add(sum, tire))
	}
	mean := try(py.TrueDiv(sum, int64(4)))
	healthy := between(mean, int64(30), int64(35))
	var info py.Value = &py.Dict{}
	if v.longContext {
		info = v.shared.constant("CAR_STATUS_METADATA_EXTENSION")
	}
	return py.NewDict("frontLeftTirePressure", v.frontLeftTire, "frontRightTirePressure", v.frontRightTire,
		"rearLeftTirePressure", v.rearLeftTire, "rearRightTirePressure", v.rearRightTire,
		"healthy_tire_pressure", healthy, "car_info", info)
}

// zipcodes maps the cities of get_zipcode_based_on_city to their zip codes.
var zipcodes = map[string]string{
	"Rivermist": "83214", "Stonebrook": "74532", "Maplecrest": "56108", "Silverpine": "62947", "Shadowridge": "71354",
	"Sunset Valley": "83462", "Oakendale": "47329", "Willowbend": "52013", "Crescent Hollow": "69238",
	"Autumnville": "51479", "San Francisco": "94016",
}

func (v *vehicleControlAPI) zipcode(city py.Value) py.Value {
	name, _ := city.(string)
	return py.NewDict("zipcode", cmp.Or(zipcodes[name], "00000"))
}

// distances maps pairs of zip codes, the smaller code first, to distances.
var distances = map[[2]string]float64{
	{"08540", "94016"}: 1950, {"08540", "94704"}: 2550, {"47329", "52013"}: 290, {"47329", "62947"}: 1053,
	{"51479", "69238"}: 630, {"56108", "62947"}: 320, {"62947", "94016"}: 780, {"71354", "83462"}: 450,
	{"74532", "83214"}: 750, {"74532", "94016"}: 880, {"83214", "94016"}: 980, {"94016", "94704"}: 600,
}

func (v *vehicleControlAPI) estimateDistance(cityA, cityB py.Value) py.Value {
	a, _ := cityA.(string)
	b, _ := cityB.(string)
	reply := py.MakeDict(2)
	if distance, ok := distances[[2]string{min(a, b), max(a, b)}]; ok {
		reply.Set("distance", distance)
	} else {
		reply.Set("error", "distance not found in database.")
	}
	if v.longContext {
		reply.Set("intermediaryCities", v.shared.constant("INTERMEDIARY_CITIES"))
	}
	return reply
}
