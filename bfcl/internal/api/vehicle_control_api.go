package api

import "rcgrpo/bfcl/internal/py"

var vehicleMethods = []Method{
	on1("activateParkingBrake", (*vehicleControlAPI).activateParkingBrake, Required("mode")),
	on4("adjustClimateControl", (*vehicleControlAPI).adjustClimate,
		Required("temperature"), Optional("unit", "celsius"), Optional("fanSpeed", int64(50)),
		Optional("mode", "auto")),
	on0("check_tire_pressure", (*vehicleControlAPI).checkTires),
	on1("displayCarStatus", (*vehicleControlAPI).status, Required("option")),
	on1("display_log", (*vehicleControlAPI).log, Required("messages")),
	on2("estimate_distance", (*vehicleControlAPI).estimateDistance, Required("cityA"), Required("cityB")),
	on1("estimate_drive_feasibility_by_mileage", (*vehicleControlAPI).canDrive, Required("distance")),
	on1("fillFuelTank", (*vehicleControlAPI).fill, Required("fuelAmount")),
	on0("find_nearest_tire_shop", (*vehicleControlAPI).tireShop),
	on1("gallon_to_liter", (*vehicleControlAPI).toLiter, Required("gallon")),
	on0("get_current_speed", (*vehicleControlAPI).speed),
	on0("get_outside_temperature_from_google", (*vehicleControlAPI).weather),
	on0("get_outside_temperature_from_weather_com", (*vehicleControlAPI).noWeather),
	on1("get_zipcode_based_on_city", (*vehicleControlAPI).zipcode, Required("city")),
	on1("liter_to_gallon", (*vehicleControlAPI).toGallon, Required("liter")),
	on2("lockDoors", (*vehicleControlAPI).lock, Required("unlock"), Required("door")),
	on1("pressBrakePedal", (*vehicleControlAPI).press, Required("pedalPosition")),
	on0("releaseBrakePedal", (*vehicleControlAPI).release),
	on3("setCruiseControl", (*vehicleControlAPI).setCruise,
		Required("speed"), Required("activate"), Required("distanceToNextVehicle")),
	on1("setHeadlights", (*vehicleControlAPI).setHeadlights, Required("mode")),
	on1("set_navigation", (*vehicleControlAPI).navigate, Required("destination")),
	on1("startEngine", (*vehicleControlAPI).ignite, Required("ignitionMode")),
}

const vehicleSeed = 141053

// vehicleControlAPI implements VehicleControlAPI (bfcl/SPEC.md 13.8). The brake forces and the
// slope are private: replies contain them, states do not.
type vehicleControlAPI struct {
	shared      *Shared // only its constants are used, so clones share it
	longContext bool
	random      *py.Random
	week        *py.Dict // the single object of all weather replies of long context; nil before the first

	fuel, battery, engine py.Value
	unlocked              int64    // number of unlocked doors, counted at load and by every lock and unlock
	doors                 *py.Dict // door -> "locked" or "unlocked"

	temperature, fan, climate, humidity, headlights            py.Value
	parkingBrake, pedal                                        py.Value
	parkingForce, slope, pedalForce                            py.Value // not part of State
	distance, cruise, destination                              py.Value
	frontLeftTire, frontRightTire, rearLeftTire, rearRightTire py.Value
}

func newVehicleControlAPI() Instance { return &vehicleControlAPI{} }

// Load reads some attributes under other names than State returns, and counts the unlocked doors.
func (v *vehicleControlAPI) Load(scenario *py.Dict, s *Shared, longContext bool) (err error) {
	defer catch(&err)
	v.shared, v.longContext = s, longContext
	if longContext {
		s.require("CAR_STATUS_METADATA_EXTENSION", "INTERMEDIARY_CITIES", "LONG_WEATHER_EXTENSION",
			"PARKING_BRAKE_INSTRUCTION")
	}
	v.random = seeded(scenario, vehicleSeed)
	v.doors = asDict(setting(scenario, "doorStatus", py.NewDict("driver", "unlocked", "passenger", "unlocked",
		"rear_left", "unlocked", "rear_right", "unlocked")), "keys")
	v.unlocked = 4
	for _, status := range v.doors.All() {
		if status == "locked" {
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
	v.rearLeftTire = setting(scenario, "rearLeftTirePressure", 30.0)
	v.rearRightTire = setting(scenario, "rearRightTirePressure", 30.0)
	return nil
}

func (v *vehicleControlAPI) State() []Attr {
	return []Attr{{"fuelLevel", v.fuel}, {"batteryVoltage", v.battery}, {"engine_state", v.engine},
		{"remainingUnlockedDoors", v.unlocked}, {"doorStatus", v.doors}, {"acTemperature", v.temperature},
		{"fanSpeed", v.fan}, {"acMode", v.climate}, {"humidityLevel", v.humidity}, {"headLightStatus", v.headlights},
		{"parkingBrakeStatus", v.parkingBrake}, {"brakePedalStatus", v.pedal}, {"distanceToNextVehicle", v.distance},
		{"cruiseStatus", v.cruise}, {"destination", v.destination}, {"frontLeftTirePressure", v.frontLeftTire},
		{"frontRightTirePressure", v.frontRightTire}, {"rearLeftTirePressure", v.rearLeftTire},
		{"rearRightTirePressure", v.rearRightTire}, {"long_context", v.longContext}}
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
		&c.destination, &c.frontLeftTire, &c.frontRightTire, &c.rearLeftTire, &c.rearRightTire} {
		*kept = py.Clone(*kept, m)
	}
	return &c
}
