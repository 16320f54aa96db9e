package api

import "rcgrpo/bfcl/internal/py"

const (
	vehicleParkingBrake = iota
	vehicleClimate
	vehicleTirePressure
	vehicleStatus
	vehicleLog
	vehicleDistance
	vehicleFeasible
	vehicleFuel
	vehicleTireShop
	vehicleToLiter
	vehicleSpeed
	vehicleGoogle
	vehicleWeatherCom
	vehicleZipcode
	vehicleToGallon
	vehicleDoors
	vehiclePress
	vehicleRelease
	vehicleCruise
	vehicleLights
	vehicleNavigate
	vehicleEngine
)

var vehicleMethods = []Method{
	vehicleParkingBrake: {"activateParkingBrake", []Param{Required("mode")}},
	vehicleClimate: {"adjustClimateControl", []Param{Required("temperature"), Optional("unit", "celsius"),
		Optional("fanSpeed", int64(50)), Optional("mode", "auto")}},
	vehicleTirePressure: {"check_tire_pressure", nil},
	vehicleStatus:       {"displayCarStatus", []Param{Required("option")}},
	vehicleLog:          {"display_log", []Param{Required("messages")}},
	vehicleDistance:     {"estimate_distance", []Param{Required("cityA"), Required("cityB")}},
	vehicleFeasible:     {"estimate_drive_feasibility_by_mileage", []Param{Required("distance")}},
	vehicleFuel:         {"fillFuelTank", []Param{Required("fuelAmount")}},
	vehicleTireShop:     {"find_nearest_tire_shop", nil},
	vehicleToLiter:      {"gallon_to_liter", []Param{Required("gallon")}},
	vehicleSpeed:        {"get_current_speed", nil},
	vehicleGoogle:       {"get_outside_temperature_from_google", nil},
	vehicleWeatherCom:   {"get_outside_temperature_from_weather_com", nil},
	vehicleZipcode:      {"get_zipcode_based_on_city", []Param{Required("city")}},
	vehicleToGallon:     {"liter_to_gallon", []Param{Required("liter")}},
	vehicleDoors:        {"lockDoors", []Param{Required("unlock"), Required("door")}},
	vehiclePress:        {"pressBrakePedal", []Param{Required("pedalPosition")}},
	vehicleRelease:      {"releaseBrakePedal", nil},
	vehicleCruise: {"setCruiseControl", []Param{Required("speed"), Required("activate"),
		Required("distanceToNextVehicle")}},
	vehicleLights:   {"setHeadlights", []Param{Required("mode")}},
	vehicleNavigate: {"set_navigation", []Param{Required("destination")}},
	vehicleEngine:   {"startEngine", []Param{Required("ignitionMode")}},
}

const vehicleSeed = 141053

// vehicleControlAPI implements VehicleControlAPI (bfcl/SPEC.md 13.8). The brake forces and the
// slope are private: replies contain them, states do not.
type vehicleControlAPI struct {
	shared *Shared // only its constants are used, so clones share it
	long   bool
	random *py.Random
	week   *py.Dict // long context: the single object of all weather replies

	fuel, battery, engine py.Value
	unlocked              int64    // number of unlocked doors, counted at load and by every lock and unlock
	doors                 *py.Dict // door -> "locked" or "unlocked"

	temperature, fan, climate, humidity, headlights    py.Value
	parkingBrake, pedal                                py.Value
	parkingForce, slope, pedalForce                    py.Value // private
	distance, cruise, destination                      py.Value
	frontLeftTire, frontRightTire, rearLeft, rearRight py.Value
}

func newVehicleControlAPI() Instance { return &vehicleControlAPI{} }

// Load reads some attributes under other names than State returns, and counts the unlocked doors.
func (v *vehicleControlAPI) Load(scenario *py.Dict, s *Shared, longContext bool) error {
	v.shared, v.long = s, longContext
	if longContext {
		if err := s.require("CAR_STATUS_METADATA_EXTENSION", "INTERMEDIARY_CITIES", "LONG_WEATHER_EXTENSION",
			"PARKING_BRAKE_INSTRUCTION"); err != nil {
			return err
		}
	}
	var err error
	if v.random, err = seeded(scenario, vehicleSeed); err != nil {
		return err
	}
	if v.doors, err = asDict(setting(scenario, "doorStatus", py.NewDict("driver", "unlocked", "passenger", "unlocked",
		"rear_left", "unlocked", "rear_right", "unlocked")), "keys"); err != nil {
		return err
	}
	v.unlocked = 4
	for i := range v.doors.Len() {
		if _, status := v.doors.At(i); status == "locked" {
			v.unlocked--
		}
	}
	v.fuel = setting(scenario, "fuelLevel", 0.0)
	v.battery = setting(scenario, "batteryVoltage", 12.6)
	v.engine = setting(scenario, "engineState", "stopped")
	v.temperature = setting(scenario, "acTemperature", 25.0)
	v.fan = setting(scenario, "fanSpeed", int64(50))
	v.climate = setting(scenario, "acMode", "auto")
	v.humidity = setting(scenario, "humidityLevel", 50.0)
	v.headlights = setting(scenario, "headLightStatus", "off")
	v.parkingBrake = setting(scenario, "parkingBrakeStatus", "released")
	v.parkingForce = setting(scenario, "parkingBrakeForce", 0.0)
	v.slope = setting(scenario, "slopeAngle", 0.0)
	v.pedal = setting(scenario, "brakePedalStatus", "released")
	v.pedalForce = setting(scenario, "brakePedalForce", 0.0)
	v.distance = setting(scenario, "distanceToNextVehicle", 50.0)
	v.cruise = setting(scenario, "cruiseStatus", "inactive")
	v.destination = setting(scenario, "destination", "None")
	v.frontLeftTire = setting(scenario, "frontLeftTirePressure", 32.0)
	v.frontRightTire = setting(scenario, "frontRightTirePressure", 32.0)
	v.rearLeft = setting(scenario, "rearLeftTirePressure", 30.0)
	v.rearRight = setting(scenario, "rearRightTirePressure", 30.0)
	return nil
}

func (v *vehicleControlAPI) State() []Attr {
	return []Attr{{"fuelLevel", v.fuel}, {"batteryVoltage", v.battery}, {"engine_state", v.engine},
		{"remainingUnlockedDoors", v.unlocked}, {"doorStatus", v.doors}, {"acTemperature", v.temperature},
		{"fanSpeed", v.fan}, {"acMode", v.climate}, {"humidityLevel", v.humidity}, {"headLightStatus", v.headlights},
		{"parkingBrakeStatus", v.parkingBrake}, {"brakePedalStatus", v.pedal}, {"distanceToNextVehicle", v.distance},
		{"cruiseStatus", v.cruise}, {"destination", v.destination}, {"frontLeftTirePressure", v.frontLeftTire},
		{"frontRightTirePressure", v.frontRightTire}, {"rearLeftTirePressure", v.rearLeft},
		{"rearRightTirePressure", v.rearRight}, {"long_context", v.long}}
}

func (v *vehicleControlAPI) Private() []Attr {
	return []Attr{{"_brakePedalForce", v.pedalForce}, {"_parkingBrakeForce", v.parkingForce}, {"_slopeAngle", v.slope}}
}

func (v *vehicleControlAPI) Clone(m *py.Memo) Instance {
	c := *v
	c.random = v.random.Clone()
	c.doors = v.doors.Clone(m)
	if v.week != nil {
		c.week = v.week.Clone(m)
	}
	// Only these attributes may contain mutable arguments of calls.
	for _, kept := range []*py.Value{&c.fuel, &c.battery, &c.engine, &c.temperature, &c.fan, &c.climate, &c.humidity,
		&c.headlights, &c.parkingBrake, &c.parkingForce, &c.slope, &c.pedal, &c.pedalForce, &c.distance, &c.cruise,
		&c.destination, &c.frontLeftTire, &c.frontRightTire, &c.rearLeft, &c.rearRight} {
		*kept = py.Clone(*kept, m)
	}
	return &c
}

func (v *vehicleControlAPI) Call(method int, args []py.Value) (py.Value, error) {
	switch method {
	case vehicleParkingBrake:
		return v.activateParkingBrake(args[0]), nil
	case vehicleClimate:
		return v.adjustClimate(args[0], args[1], args[2], args[3])
	case vehicleTirePressure:
		return v.checkTires()
	case vehicleStatus:
		return v.status(args[0]), nil
	case vehicleLog:
		return py.NewDict("log", args[0]), nil
	case vehicleDistance:
		return v.estimateDistance(args[0], args[1]), nil
	case vehicleFeasible:
		return v.canDrive(args[0])
	case vehicleFuel:
		return v.fill(args[0])
	case vehicleTireShop:
		return vehicleShop, nil
	case vehicleToLiter:
		return product("liter", args[0], 3.78541)
	case vehicleToGallon:
		return product("gallon", args[0], 0.264172)
	case vehicleSpeed:
		return py.NewDict("currentSpeed", v.random.Uniform(0, 120)), nil
	case vehicleGoogle:
		return v.weather(), nil
	case vehicleWeatherCom:
		return vehicleNoWeather, nil
	case vehicleZipcode:
		return zipcode(args[0]), nil
	case vehicleDoors:
		return v.lock(py.Truthy(args[0]), args[1])
	case vehiclePress:
		return v.press(args[0])
	case vehicleRelease:
		return v.release(), nil
	case vehicleCruise:
		return v.setCruise(args[0], args[1], args[2])
	case vehicleLights:
		return v.setHeadlights(args[0]), nil
	case vehicleNavigate:
		v.destination = args[0] // stored even if the message cannot be built
		text, err := py.Add("Navigating to ", args[0])
		if err != nil {
			return nil, err
		}
		return py.NewDict("status", text), nil
	case vehicleEngine:
		return v.ignite(args[0])
	}
	return nil, noMethod(method)
}

var (
	vehicleShop      = fixed("shopLocation", "456 Oakwood Avenue, Rivermist, 83214")
	vehicleNoWeather = fixed("error", int64(404))
	vehicleReleased  = fixed("brakePedalStatus", "released", "brakePedalForce", 0.0)
	vehicleBadPedal  = fixed("error", "Pedal position must be between 0 and 1.")
	vehicleBadFan    = fixed("error", "Fan speed must be between 0 and 100.")
	vehicleBadMode   = fixed("error", "Invalid mode")
	vehicleBadLights = fixed("error", "Invalid headlight mode.")
	vehicleLightsOn  = fixed("headlightStatus", "on")
	vehicleLightsOff = fixed("headlightStatus", "off")
	vehicleCan       = fixed("canDrive", true)
	vehicleCannot    = fixed("canDrive", false)
	vehicleNegative  = fixed("error", "Fuel amount cannot be negative.")
	vehicleOverfull  = fixed("error", "Cannot fill gas above the tank capacity.")
	vehicleUnderfull = fixed("error", "Fuel tank is empty. Min fuel level is 0 gallons.")
	vehicleNoPedal   = fixed("error", "Brake pedal needs to be pressed when starting the engine.")
	vehicleHalfPedal = fixed("error", "Must press the brake fully before starting the engine.")
	vehicleEmpty     = fixed("error", "Fuel tank is empty.")
	vehicleBadKey    = fixed("error", "Invalid ignition mode.")
	vehicleBadSpeed  = fixed("error", "Invalid speed")
	vehicleEngineOff = fixed("error", "Start the engine before activating the cruise control.")
)
