"""Print the table of docs/examples.md: the best and the worst five translations, by the score of the model.

Type, in the folder of the project and with a run of the multi30k preset: python docs/examples.py --run NAME
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from translate import Search, Translator  # noqa: E402

# Written for this page, as somebody would describe photographs. None of them is of any corpus.
SENTENCES = """
A woman in a red coat is waiting for the bus.
Two boys are throwing snowballs at each other in front of a school.
A brown dog is jumping over a fallen tree.
An old man is reading a newspaper on a park bench.
A girl with braids is feeding ducks at a pond.
Three firefighters are carrying a ladder into a building.
A child is drawing a house with blue chalk on the pavement.
A man wearing an apron is slicing bread in a bakery.
People are dancing at a wedding under strings of lights.
A cyclist is repairing a flat tire at the side of the road.
A cat is asleep on top of a bookshelf.
Five students are sitting on the steps of a library.
A woman is pushing a stroller through the rain.
A surfer is paddling out towards a large wave.
The goalkeeper is diving to the left to stop the ball.
A chef is tasting soup from a wooden spoon.
Two horses are grazing behind a wooden fence.
A little boy is blowing out the candles on his birthday cake.
A mechanic is lying under a green car.
Tourists are taking pictures of a fountain.
A teacher is writing an equation on the blackboard.
A man with a gray beard is playing chess against a young woman.
A train is crossing a bridge over a narrow river.
Two women in saris are selling vegetables at a market.
A baby is laughing in a high chair with spaghetti on his head.
A climber is hanging from a rope on an icy cliff.
A waiter is balancing five plates on one arm.
Children are running through a sprinkler on the lawn.
A dentist is examining the teeth of a nervous patient.
A group of nuns is waiting at a crosswalk.
A boy is trying to teach his parrot to whistle.
A man is asleep on a train with his mouth open.
A violinist is performing in a subway station.
A black cat and a white cat are looking out of the same window.
Workers in orange vests are repairing the tram tracks.
A girl is holding a starfish up to the camera.
A skateboarder falls while sliding down a handrail.
A couple is sharing an umbrella that is far too small.
A blacksmith is hammering a glowing horseshoe.
A man is vacuuming the carpet while his dog barks at the machine.
An astronaut is floating outside of a space station.
A woman is knitting a very long striped scarf.
A toddler is hiding under the table with a stolen cookie.
The orchestra is tuning its instruments before the concert.
Six rowers are training on a foggy lake at sunrise.
A squirrel is stealing seeds from a bird feeder.
A barber is shaving the neck of a customer.
Someone has drawn a mustache on the statue of the mayor.
A lifeguard is blowing her whistle at two swimmers.
A beekeeper is lifting a honeycomb out of the hive.
""".strip().splitlines()

SHOWN = 5  # at either end


def main() -> None:
    """Translate the sentences with a beam of 5, and prints those with the highest and the lowest scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="")
    translator = Translator.load(parser.parse_args().run, "cpu", "fp32")
    translations = [best for (best, *_) in translator.n_best(SENTENCES, Search(beam=5))]
    ranked = sorted(zip(SENTENCES, translations, strict=True), key=lambda pair: -pair[1].score)
    for title, part in (("highest", ranked[:SHOWN]), ("lowest", ranked[-SHOWN:])):
        print(f"| {title} scores | translation | score |\n|---|---|---|")
        for source, translation in part:
            print(f"| {source} | {translation.text} | {translation.score:.2f} |")
        print()


if __name__ == "__main__":
    main()
