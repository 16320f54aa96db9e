package drill

import (
	"strings"
	"sync"
)

// nouns are the words of all names and texts. There are enough that requests hardly repeat.
var nouns = sync.OnceValue(func() []string {
	return strings.Fields(`
amber anchor apple arrow atlas badge bamboo banner barrel basket beacon blanket blossom bottle branch bridge bronze
bucket butter button cabin cable cactus camera candle canvas canyon carbon carpet castle cedar cellar chalk channel
cherry circle citrus clock cloud clover cobalt coffee comet copper coral cotton cradle crystal curtain dancer delta
desert diamond doctor dragon drawer eagle echoes ember engine fabric falcon farmer feather ferry fiddle filter finger
flower forest fossil garden garlic ginger glacier glider granite guitar hammer harbor harvest hazel helmet honey
island ivory jacket jasmine jungle kettle kitten ladder lagoon lamp lantern lemon library lily linen lizard magnet
maple marble market meadow melon mirror monkey motor mountain museum needle nickel oasis ocean office olive onion
orange orchid otter oyster palace panda paper parrot pebble pencil pepper piano pillow pilot planet plum pocket
pony poppy prairie pumpkin puzzle quartz rabbit radio rain ribbon river robot rocket saddle sailor salmon school
shadow silver spider summer sunset tiger tulip tunnel turtle valley velvet violet violin walnut water willow window
winter wizard yellow`)
})

// people are the users of MessageAPI drills.
var people = sync.OnceValue(func() []string {
	return strings.Fields(`
Ada Ben Cleo Dora Emil Finn Gina Hugo Iris Jack Kira Liam Mona Nils Olga Paul Quin Rosa Sven Tara Uwe Vera Walt Xena
Yara Zeno Anna Boris Carla Dario Elsa Fritz`)
})

// extensions of files; those of one folder are distinct.
var extensions = []string{".txt", ".csv", ".md", ".log", ".json"}

// openers precede a request with probability 1/8 each.
var openers = []string{"Please", "Now", "Next,", "Then", "OK,"}
