# SPDX-License-Identifier: Apache-2.0
# Makes cars.csv: used cars and what was paid for them, in thousands. All of it is invented.
import random

BRANDS = {"Aquila": 31, "Borealis": 22, "Cetus": 27, "Dorado": 16, "Lynx": 44, "Vela": 19}  # new, with 100 kW
FUELS = {"petrol": 1.0, "diesel": 1.1, "electric": 1.35}

draw = random.Random(7)
print("brand,fuel,age,km,power,price")
for _ in range(600):
    brand, fuel = draw.choice(list(BRANDS)), draw.choice(list(FUELS))
    age, power = round(draw.uniform(0, 15), 1), draw.randint(40, 170)
    km = round(age * draw.uniform(6, 22) + draw.uniform(0, 10), 1)  # thousands
    fades = 0.84 if fuel == "electric" else 0.89
    price = BRANDS[brand] * FUELS[fuel] * (0.5 + power / 200) * fades**age * (1 - km / 800) * draw.gauss(1, 0.04)
    print(f"{brand},{fuel},{age},{km},{power},{price:.2f}")
