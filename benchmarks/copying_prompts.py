"""Prompts whose answers copy much of them, and ordinary questions, whose answers do not."""

from __future__ import annotations

_LETTER = """Dear neighbours,

The garden club meets again on Thursday, the 14th of March, at seven in the evening. We will talk
about the new fence along the river path, about who waters the tomatoes in July, and about the
old apple tree near the gate, which lost two large branches in the storm. Please bring a chair and
something to drink. Children are welcome, dogs are not, since the chickens are still nervous.

With kind regards,
Margaret Hill"""
_LOG = """08:14:02 INFO  worker 3 started on port 7010
08:14:05 INFO  worker 4 started on port 7011
08:15:11 ERROR worker 3 lost its connection to the store at 10.0.0.7
08:15:12 INFO  worker 3 connects again
08:16:40 ERROR worker 4 could not write block 2291: disk is full
08:17:03 INFO  cleaning 12 old files in /var/cache/blocks
08:18:55 ERROR worker 4 could not write block 2304: disk is full
08:20:00 INFO  disk has 41 percent free"""
_ARTICLE = """The lighthouse at Cape Morrow was built in 1871 from granite that was cut on the
island itself. For almost a hundred years a keeper and his family lived in the tower, and every four
hours somebody climbed the 164 steps to wind the clockwork that turned the lamp. In 1968 the lamp
was replaced by an electric one, and the last keeper, Edward Finch, moved to the village. The tower
is a museum now. It is open from May to October, and visitors may climb the stairs on their own."""
_RECIPE = """Ingredients: 300 g flour, 150 g butter, 100 g sugar, 1 egg, 1 pinch of salt, 2 apples.
Steps: 1. Mix flour, butter, sugar, egg and salt to a dough. 2. Let it rest in a cold place for half
an hour. 3. Peel the apples and cut them into thin slices. 4. Roll out the dough, put it into a
round form, and lay the slices on it. 5. Bake for 40 minutes at 180 degrees."""

_STORY = """Emma lived in a narrow house at the end of Mill Lane. Every morning she fed the ducks on
the pond, and every evening she counted them, because her grandfather had told her that a careful
person always knows what she has. One day in October there was one duck too many. It was small and
grey, and it limped. Emma wrapped it in her scarf, carried it home, and put it next to the stove.
By the end of the winter it followed her to school and waited at the gate until the bell rang."""
_MINUTES = """The meeting began at nine. Mr. Baker reported that the new warehouse will be ready in
June, two months later than planned, because the floor has to be replaced. Ms. Ito asked whether the
old warehouse can be kept until then. Mr. Baker said that the owner agrees, if the rent is paid in
advance. It was decided that Ms. Ito will write to the owner before the end of the week. The next
meeting is on the 3rd of April."""
_PRODUCT = """The Alder desk lamp is made of oiled ash wood and brushed steel. Its arm turns in
every direction and stays where you leave it. The light can be set from a warm evening tone to a
bright white for work, and the lamp remembers the last setting. It needs no more than seven
watts, and its cable is two metres long. The shade is taken off without tools when it has to be
cleaned."""
_NOTICE = """Dear residents, the water in the whole building will be turned off on Tuesday from
eight in the morning until about three in the afternoon. The plumbers will replace the main
valve in the cellar. Please keep some water for the day, and do not use the washing machines in
the basement. If the work takes longer than planned, we will put a note on the front door. Thank
you for your patience."""

COPYING = (
    f"Repeat this letter word for word, but change Thursday to Friday:\n\n{_LETTER}",
    f"Correct the mistakes in this text and repeat the whole of it, leave the rest as it is:\n\n"
    f"{_ARTICLE.replace('granite', 'granit').replace('visitors', 'visiters')}",
    f"Extract all lines with ERROR from this log, exactly as they are:\n\n{_LOG}",
    f"Write this recipe again, with every step on a line of its own:\n\n{_RECIPE}",
    f"Repeat the following text exactly:\n\n{_ARTICLE}",
    f"Write this story again, with the name Anna instead of Emma:\n\n{_STORY}",
    f"Repeat these minutes and put Mr. Cole in the place of Mr. Baker:\n\n{_MINUTES}",
    f"Copy this description and add that the price is 49 euros:\n\n{_PRODUCT}",
    f"Repeat this notice, but say Wednesday instead of Tuesday:\n\n{_NOTICE}",
    f"Extract the sentences about the water from this notice, word for word:\n\n{_NOTICE}",
)

CHATTING = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper.",
    "Explain how rain forms, in simple words.",
    "List three uses of copper and say a sentence about each.",
    "My friend is sad. What could I say to her?",
    "Why is the sky blue during the day and red in the evening?",
    "Give me some advice for learning to play the piano as an adult.",
    "What is the difference between a virus and a bacterium?",
    "Describe a quiet morning in a small town by the sea.",
    "How does a bicycle stay upright when it moves?",
)
