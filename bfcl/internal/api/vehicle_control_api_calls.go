package api

import (
	"math"
	"sync"

	"rcgrpo/bfcl/internal/py"
)

// ignite starts the engine. "STOP" stops it, then runs the same checks, so it never reports
// success.
func (v *vehicleControlAPI) ignite(mode py.Value) (py.Value, error) {
	if mode == "STOP" {
		v.engine = "stopped"
	}
	if v.unlocked > 0 {
		return v.unlockedDoors()
	}
	if v.pedal != "pressed" {
		return vehicleNoPedal, nil
	}
	if !py.Equal(v.pedalForce, 1000.0) {
		return vehicleHalfPedal, nil
	}
	empty, err := py.Compare("<", v.fuel, 0.0)
	switch {
	case err != nil:
		return nil, err
	case empty:
		return vehicleEmpty, nil
	case mode != "START":
		return vehicleBadKey, nil
	}
	v.engine = "running"
	return py.NewDict("engineState", v.engine, "fuelLevel", v.fuel, "batteryVoltage", v.battery), nil
}

func (v *vehicleControlAPI) unlockedDoors() (py.Value, error) {
	var open []py.Value
	for i := range v.doors.Len() {
		if door, status := v.doors.At(i); status == "unlocked" {
			open = append(open, door)
		}
	}
	names, err := join(open)
	if err != nil {
		return nil, err
	}
	return fault("All doors must be locked before starting the engine. Here are the unlocked doors: " + names), nil
}

// tankCapacity is in gallons.
const tankCapacity = int64(50)

func (v *vehicleControlAPI) fill(amount py.Value) (py.Value, error) {
	negative, err := py.Compare("<", amount, int64(0))
	if err != nil {
		return nil, err
	}
	if negative {
		return vehicleNegative, nil
	}
	level, err := py.Add(v.fuel, amount)
	if err != nil {
		return nil, err
	}
	over, err := py.Compare(">", level, tankCapacity)
	if err != nil {
		return nil, err
	}
	if over {
		return vehicleOverfull, nil
	}
	under, err := py.Compare("<", level, 0.0)
	if err != nil {
		return nil, err
	}
	if under {
		return vehicleUnderfull, nil
	}
	v.fuel = level
	return py.NewDict("fuelLevel", level), nil
}

// lock locks or unlocks doors in order; doors before an unknown one stay changed.
func (v *vehicleControlAPI) lock(unlock bool, doors py.Value) (py.Value, error) {
	names, err := py.Iterate(doors)
	if err != nil {
		return nil, err
	}
	status, change := "locked", int64(-1)
	if unlock {
		status, change = "unlocked", 1
	}
	for _, name := range names {
		have, err := v.doors.Index(name)
		if err != nil {
			return nil, err
		}
		if have == status {
			continue
		}
		v.doors.Set(name, status)
		v.unlocked += change
	}
	return py.NewDict("lockStatus", status, "remainingUnlockedDoors", v.unlocked), nil
}

// adjustClimate stores the temperature in degrees Celsius and replies with the given one.
func (v *vehicleControlAPI) adjustClimate(temperature, unit, fan, mode py.Value) (py.Value, error) {
	fits, err := between(fan, int64(0), int64(100))
	if err != nil {
		return nil, err
	}
	if !fits {
		return vehicleBadFan, nil
	}
	v.temperature = temperature
	if unit == "fahrenheit" {
		if v.temperature, err = celsius(temperature); err != nil {
			v.temperature = temperature
			return nil, err
		}
	}
	v.fan, v.climate = fan, mode
	return py.NewDict("currentACTemperature", temperature, "climateMode", mode, "humidityLevel", v.humidity), nil
}

func celsius(fahrenheit py.Value) (py.Value, error) {
	c, err := py.Sub(fahrenheit, int64(32))
	if err == nil {
		c, err = py.Mul(c, int64(5))
	}
	if err != nil {
		return nil, err
	}
	return py.TrueDiv(c, int64(9))
}

func between(v, low, high py.Value) (bool, error) {
	if above, err := py.Compare("<=", low, v); !above || err != nil {
		return false, err
	}
	return py.Compare("<=", v, high)
}

// weather draws a temperature. In long context all replies are one object, so replies within one
// expression show the latest temperature.
func (v *vehicleControlAPI) weather() py.Value {
	now := v.random.Uniform(-10, 40)
	if !v.long {
		return py.NewDict("outsideTemperature", now)
	}
	if v.week == nil {
		v.week = &py.Dict{}
		if days, ok := v.shared.constant("LONG_WEATHER_EXTENSION").(*py.Dict); ok {
			v.week = days
		}
	}
	v.week.SetStr("outsideTemperature", now)
	return v.week
}

func (v *vehicleControlAPI) setHeadlights(mode py.Value) py.Value {
	switch mode {
	case "on":
		v.headlights = "on"
		return vehicleLightsOn
	case "off", "auto":
		v.headlights = "off"
		return vehicleLightsOff
	}
	return vehicleBadLights
}

func (v *vehicleControlAPI) status(option py.Value) py.Value {
	reply := py.MakeDict(5)
	if v.long {
		reply.SetStr("metadata", v.shared.constant("CAR_STATUS_METADATA_EXTENSION"))
	}
	switch option {
	case "fuel":
		reply.SetStr("fuelLevel", v.fuel)
	case "battery":
		reply.SetStr("batteryVoltage", v.battery)
	case "doors":
		reply.SetStr("doorStatus", v.doors)
	case "climate":
		reply.SetStr("currentACTemperature", v.temperature)
		reply.SetStr("fanSpeed", v.fan)
		reply.SetStr("climateMode", v.climate)
		reply.SetStr("humidityLevel", v.humidity)
	case "headlights":
		reply.SetStr("headlightStatus", v.headlights)
	case "parkingBrake":
		reply.SetStr("parkingBrakeStatus", v.parkingBrake)
		reply.SetStr("parkingBrakeForce", v.parkingForce)
		reply.SetStr("slopeAngle", v.slope)
	case "brakePedal":
		reply.SetStr("brakePedalStatus", v.pedal)
		reply.SetStr("brakePedalForce", v.pedalForce)
	case "engine":
		reply.SetStr("engineState", v.engine)
	default:
		reply.SetStr("error", "Invalid option")
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
		return vehicleBadMode
	}
	v.parkingBrake, v.parkingForce, v.slope = status, force, 10.0
	reply := py.MakeDict(4)
	if v.long {
		reply.SetStr("parkingBrakeInstruction", v.shared.constant("PARKING_BRAKE_INSTRUCTION"))
	}
	reply.SetStr("parkingBrakeStatus", v.parkingBrake)
	reply.SetStr("_parkingBrakeForce", v.parkingForce)
	reply.SetStr("_slopeAngle", v.slope)
	return reply
}

// press stores the force with the number type of the position and replies with a float.
func (v *vehicleControlAPI) press(position py.Value) (py.Value, error) {
	fits, err := between(position, int64(0), int64(1))
	if err != nil {
		return nil, err
	}
	if !fits {
		return vehicleBadPedal, nil
	}
	if py.Equal(position, int64(0)) {
		return v.release(), nil
	}
	force, err := py.Mul(position, int64(1000))
	if err != nil {
		return nil, err
	}
	v.pedal, v.pedalForce = "pressed", force
	shown, err := py.Float(force)
	if err != nil {
		return nil, err
	}
	return py.NewDict("brakePedalStatus", v.pedal, "brakePedalForce", shown), nil
}

func (v *vehicleControlAPI) release() py.Value {
	v.pedal, v.pedalForce = "released", 0.0
	return vehicleReleased
}

// setCruise stores the distance of an active cruise control before it checks the speed.
func (v *vehicleControlAPI) setCruise(speed, activate, distance py.Value) (py.Value, error) {
	distance, err := py.Float(distance)
	if err != nil {
		return nil, err
	}
	if speed, err = py.Float(speed); err != nil {
		return nil, err
	}
	if v.engine == "stopped" {
		return vehicleEngineOff, nil
	}
	v.distance = distance
	active := py.Truthy(activate)
	if s, ok := speed.(float64); active && (!ok || !(s >= 0 && s <= 120 && math.Mod(s, 5) == 0)) {
		return vehicleBadSpeed, nil
	}
	v.cruise = "inactive"
	if active {
		v.cruise = "active"
	}
	return py.NewDict("cruiseStatus", v.cruise, "currentSpeed", speed, "distanceToNextVehicle", distance), nil
}

const milesPerGallon = 20.0

func (v *vehicleControlAPI) canDrive(distance py.Value) (py.Value, error) {
	reach, err := py.Mul(v.fuel, milesPerGallon)
	if err != nil {
		return nil, err
	}
	short, err := py.Compare("<", reach, distance)
	if err != nil {
		return nil, err
	}
	if short {
		return vehicleCannot, nil
	}
	return vehicleCan, nil
}

// product returns the reply {key: v * factor}.
func product(key string, v py.Value, factor float64) (py.Value, error) {
	p, err := py.Mul(v, factor)
	if err != nil {
		return nil, err
	}
	return py.NewDict(key, p), nil
}

// checkTires reports healthy tires if their mean pressure is 30 to 35 psi.
func (v *vehicleControlAPI) checkTires() (py.Value, error) {
	sum := v.frontLeftTire
	var err error
	for _, tire := range []py.Value{v.frontRightTire, v.rearLeft, v.rearRight} {
		if sum, err = py.Add(sum, tire); err != nil {
			return nil, err
		}
	}
	mean, err := py.TrueDiv(sum, int64(4))
	if err != nil {
		return nil, err
	}
	healthy, err := between(mean, int64(30), int64(35))
	if err != nil {
		return nil, err
	}
	var info py.Value
	if v.long {
		info = v.shared.constant("CAR_STATUS_METADATA_EXTENSION")
	} else {
		info = &py.Dict{}
	}
	return py.NewDict("frontLeftTirePressure", v.frontLeftTire, "frontRightTirePressure", v.frontRightTire,
		"rearLeftTirePressure", v.rearLeft, "rearRightTirePressure", v.rearRight,
		"healthy_tire_pressure", healthy, "car_info", info), nil
}

// zipcodes are the cities of get_zipcode_based_on_city.
var zipcodes = sync.OnceValue(func() map[string]*py.Frozen {
	return map[string]*py.Frozen{
		"Rivermist": fixed("zipcode", "83214"), "Stonebrook": fixed("zipcode", "74532"),
		"Maplecrest": fixed("zipcode", "56108"),
		"Silverpine": fixed("zipcode", "62947"), "Shadowridge": fixed("zipcode", "71354"),
		"Sunset Valley": fixed("zipcode", "83462"),
		"Oakendale":     fixed("zipcode", "47329"), "Willowbend": fixed("zipcode", "52013"),
		"Crescent Hollow": fixed("zipcode", "69238"),
		"Autumnville":     fixed("zipcode", "51479"), "San Francisco": fixed("zipcode", "94016"),
	}
})

var noZipcode = fixed("zipcode", "00000")

func zipcode(city py.Value) py.Value {
	name, _ := city.(string)
	if reply, ok := zipcodes()[name]; ok {
		return reply
	}
	return noZipcode
}

// distances are the known distances between zip codes, the smaller code first.
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
		reply.SetStr("distance", distance)
	} else {
		reply.SetStr("error", "distance not found in database.")
	}
	if v.long {
		reply.SetStr("intermediaryCities", v.shared.constant("INTERMEDIARY_CITIES"))
	}
	return reply
}
