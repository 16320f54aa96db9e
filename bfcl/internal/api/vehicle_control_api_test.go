package api

import (
	"math"
	"strings"
	"testing"

	"rcgrpo/bfcl/internal/py"
)

func allDoors() *py.List { return py.NewList("driver", "passenger", "rear_left", "rear_right") }

func TestVehicleEngine(t *testing.T) {
	p := start(t, "VehicleControlAPI", `{"engineState": "running", "fuelLevel": 0}`)
	p.want(`{"error": "All doors must be locked before starting the engine. Here are the unlocked doors: driver, passenger, rear_left, rear_right"}`,
		"startEngine", "STOP")
	p.want(`{"engineState": "stopped"}`, "displayCarStatus", "engine") // it stopped all the same
	p.want(`{"lockStatus": "locked", "remainingUnlockedDoors": 0}`, "lockDoors", false, allDoors())
	p.want(`{"error": "Brake pedal needs to be pressed when starting the engine."}`, "startEngine", "START")
	p.want(`{"brakePedalStatus": "pressed", "brakePedalForce": 999.0}`, "pressBrakePedal", 0.999)
	p.want(`{"error": "Must press the brake fully before starting the engine."}`, "startEngine", "START")
	p.want(`{"brakePedalStatus": "pressed", "brakePedalForce": 1000.0}`, "pressBrakePedal", true)
	p.want(`{"engineState": "running", "fuelLevel": 0, "batteryVoltage": 12.6}`, "startEngine", "START")
	p.want(`{"error": "Invalid ignition mode."}`, "startEngine", "STOP")
	p.want(`{"engineState": "stopped"}`, "displayCarStatus", "engine")
}

func TestVehicleDoors(t *testing.T) {
	p := start(t, "VehicleControlAPI", `{"remainingUnlockedDoors": 9, "doorStatus": {"driver": "locked", "rear_left": "ajar"}}`)
	p.want(`{"error": "All doors must be locked before starting the engine. Here are the unlocked doors: "}`, "startEngine", "START")
	p.want(`{"lockStatus": "unlocked", "remainingUnlockedDoors": 3}`, "lockDoors", "no", py.NewList())
	p.want(`KeyError: 'trunk'`, "lockDoors", true, py.NewList("driver", "trunk", "rear_left"))
	p.want(`{"doorStatus": {"driver": "unlocked", "rear_left": "ajar"}}`, "displayCarStatus", "doors")
	p.want(`KeyError: 'd'`, "lockDoors", true, "driver")
	p.want(`TypeError: unhashable type: 'list'`, "lockDoors", true, py.NewList(py.NewList()))
	p.want(`{"lockStatus": "locked", "remainingUnlockedDoors": 2}`, "lockDoors", nil, py.NewDict("driver", int64(1), "rear_left", int64(2)))
}

func TestVehicleBrakes(t *testing.T) {
	p := start(t, "VehicleControlAPI", "")
	p.want(`{"brakePedalStatus": "pressed", "brakePedalForce": 1000.0}`, "pressBrakePedal", int64(1))
	p.want(`{"brakePedalStatus": "pressed", "brakePedalForce": 1000}`, "displayCarStatus", "brakePedal") // kept as it was given
	p.want(`{"error": "Pedal position must be between 0 and 1."}`, "pressBrakePedal", 1.5)
	p.want(`TypeError: '<=' not supported between instances of 'int' and 'NoneType'`, "pressBrakePedal", nil)
	p.want(`{"brakePedalStatus": "released", "brakePedalForce": 0.0}`, "pressBrakePedal", math.Copysign(0, -1))
	p.want(`{"brakePedalStatus": "released", "brakePedalForce": 0.0}`, "releaseBrakePedal")
	p.want(`{"parkingBrakeStatus": "released", "_parkingBrakeForce": 0.0, "_slopeAngle": 10.0}`, "activateParkingBrake", "release")
	p.want(`{"parkingBrakeStatus": "engaged", "_parkingBrakeForce": 500.0, "_slopeAngle": 10.0}`, "activateParkingBrake", "engage")
	p.want(`{"error": "Invalid mode"}`, "activateParkingBrake", py.NewList("engage"))
	p.want(`{"parkingBrakeStatus": "engaged", "parkingBrakeForce": 500.0, "slopeAngle": 10.0}`, "displayCarStatus", "parkingBrake")
	for _, a := range p.it.State() {
		if strings.HasSuffix(a.Name, "Force") || strings.HasSuffix(a.Name, "Angle") {
			t.Errorf("%s is part of the state, want it hidden", a.Name)
		}
	}
}

func TestVehicleClimate(t *testing.T) {
	p := start(t, "VehicleControlAPI", "")
	p.want(`{"currentACTemperature": 72, "climateMode": "auto", "humidityLevel": 50.0}`, "adjustClimateControl", int64(72), "fahrenheit", int64(75))
	p.want(`{"currentACTemperature": 22.22222222222222, "fanSpeed": 75, "climateMode": "auto", "humidityLevel": 50.0}`, "displayCarStatus", "climate")
	p.want(`{"error": "Fan speed must be between 0 and 100."}`, "adjustClimateControl", int64(1), "celsius", 100.5)
	p.want(`TypeError: unsupported operand type(s) for -: 'str' and 'int'`, "adjustClimateControl", "hot", "fahrenheit", int64(1), "cool")
	// The temperature was stored before it was converted, the rest was not.
	p.want(`{"currentACTemperature": "hot", "fanSpeed": 75, "climateMode": "auto", "humidityLevel": 50.0}`, "displayCarStatus", "climate")
	p.want(`{"currentACTemperature": 20, "climateMode": "auto", "humidityLevel": 50.0}`, "adjustClimateControl", int64(20), "kelvin")
	p.want(`{"error": 404}`, "get_outside_temperature_from_weather_com")
	p.want(`{"error": "Invalid headlight mode."}`, "setHeadlights", "beam")
	p.want(`{"headlightStatus": "on"}`, "setHeadlights", "on")
	p.want(`{"headlightStatus": "off"}`, "setHeadlights", "auto")
}

func TestVehicleCruise(t *testing.T) {
	p := start(t, "VehicleControlAPI", `{"engineState": "running"}`)
	p.want(`{"error": "Invalid speed"}`, "setCruiseControl", int64(63), true, int64(101))
	if got := p.it.State()[12]; got.Name != "distanceToNextVehicle" || got.Value != 101.0 {
		t.Errorf("distance after an invalid speed: got %v, want 101.0", got)
	}
	p.want(`{"cruiseStatus": "active", "currentSpeed": 65.0, "distanceToNextVehicle": 100.0}`, "setCruiseControl", int64(65), int64(1), "100")
	p.want(`{"cruiseStatus": "inactive", "currentSpeed": 63.0, "distanceToNextVehicle": 7.0}`, "setCruiseControl", int64(63), "", int64(7))
	p.want(`{"error": "Invalid speed"}`, "setCruiseControl", "nan", true, int64(1))
	p.want(`ValueError: could not convert string to float: 'x'`, "setCruiseControl", "x", true, int64(1))
	p = start(t, "VehicleControlAPI", "")
	p.want(`{"error": "Start the engine before activating the cruise control."}`, "setCruiseControl", int64(65), true, int64(100))
}

// The first two draws are those of random.Random(141053) in CPython.
func TestVehicleTrip(t *testing.T) {
	p := start(t, "VehicleControlAPI", "")
	p.want(`{"currentSpeed": 111.92365689097284}`, "get_current_speed")
	p.want(`{"outsideTemperature": 31.29968928699752}`, "get_outside_temperature_from_google")
	p.want(`{"fuelLevel": 2.5}`, "fillFuelTank", 2.5)
	p.want(`{"error": "Fuel amount cannot be negative."}`, "fillFuelTank", int64(-1))
	p.want(`{"error": "Cannot fill gas above the tank capacity."}`, "fillFuelTank", 47.6)
	p.want(`{"canDrive": true}`, "estimate_drive_feasibility_by_mileage", int64(50))
	p.want(`{"canDrive": false}`, "estimate_drive_feasibility_by_mileage", 50.5)
	p.want(`{"gallon": 2.6417200000000003}`, "liter_to_gallon", int64(10))
	p.want(`{"liter": 37.8541}`, "gallon_to_liter", int64(10))
	p.want(`{"distance": 980.0}`, "estimate_distance", "94016", "83214")
	p.want(`{"error": "distance not found in database."}`, "estimate_distance", int64(94016), "83214")
	p.want(`{"zipcode": "00000"}`, "get_zipcode_based_on_city", py.NewList("Rivermist"))
	p.want(`TypeError: can only concatenate str (not "int") to str`, "set_navigation", int64(5))
	if got := p.it.State()[14]; got.Name != "destination" || got.Value != int64(5) {
		t.Errorf("destination after the error: got %v, want 5", got)
	}
	p.want(`{"status": "Navigating to 1 A St"}`, "set_navigation", "1 A St")
	p.want(`{"log": "x"}`, "display_log", "x")
	p.want(`{"frontLeftTirePressure": 32.0, "frontRightTirePressure": 32.0, "rearLeftTirePressure": 30.0, "rearRightTirePressure": 30.0, `+
		`"healthy_tire_pressure": true, "car_info": {}}`, "check_tire_pressure")
}

func TestVehicleTiresAreJudgedByTheirMean(t *testing.T) {
	for scenario, want := range map[string]string{
		`{"frontLeftTirePressure": 30, "frontRightTirePressure": 30, "rearLeftTirePressure": 30, "rearRightTirePressure": 30}`:   "true",
		`{"frontLeftTirePressure": 10, "frontRightTirePressure": 60, "rearLeftTirePressure": 35, "rearRightTirePressure": 35}`:   "true",
		`{"frontLeftTirePressure": 36, "frontRightTirePressure": 35, "rearLeftTirePressure": 35, "rearRightTirePressure": 35}`:   "false",
		`{"frontLeftTirePressure": 29.9, "frontRightTirePressure": 30, "rearLeftTirePressure": 30, "rearRightTirePressure": 30}`: "false",
	} {
		p := start(t, "VehicleControlAPI", scenario)
		if got := p.call("check_tire_pressure"); !strings.Contains(got, `"healthy_tire_pressure": `+want) {
			t.Errorf("%s: got %s, want healthy: %s", scenario, got, want)
		}
	}
}

func TestVehicleLongContext(t *testing.T) {
	constants := smallLong(t)
	PrepareLong(constants)
	p := startLong(t, "VehicleControlAPI", "", constants)
	p.want(`{"metadata": "about \"the\" car", "fuelLevel": 0.0}`, "displayCarStatus", "fuel")
	p.want(`{"metadata": "about \"the\" car", "error": "Invalid option"}`, "displayCarStatus", nil)
	p.want(`{"parkingBrakeInstruction": "pull\n", "parkingBrakeStatus": "engaged", "_parkingBrakeForce": 500.0, "_slopeAngle": 10.0}`,
		"activateParkingBrake", "engage")
	p.want(`{"error": "distance not found in database.", "intermediaryCities": ["X", "Y"]}`, "estimate_distance", "1", "2")
	p.want(`{"-1_day": {"humidity": 75.0}, "outsideTemperature": 36.63485703790535}`, "get_outside_temperature_from_google")
	if got := p.call("check_tire_pressure"); !strings.HasSuffix(got, `"car_info": "about \"the\" car"}`) {
		t.Errorf("tire pressure: got %s, want the car's description at its end", got)
	}
	other := startLong(t, "VehicleControlAPI", "", constants)
	other.want(`{"-1_day": {"humidity": 75.0}, "outsideTemperature": 36.63485703790535}`, "get_outside_temperature_from_google")
}
