"""Prompts whose answers copy much of them, and ordinary questions, whose answers do not."""

from __future__ import annotations

_LETTER = """Dear neighbours,

The garden club meets again on Thursday, the 14th of March, at seven in the evening. We will talk
about the new fence along the river path, about who waters the tomatoes in July, and about the
old apple tree near the gate, which lost two large branches in the storm. Please bring a chair and
something to drink. Children are welcome, dogs are not, since the chickens are still nervous.

With kind regards,
Margaret Hill"""
_CODE = """def read_orders(path):
    orders = []
    with open(path) as lines:
        for line in lines:
            number, customer, amount = line.strip().split(";")
            orders.append({"number": int(number), "customer": customer, "amount": float(amount)})
    return orders


def total_by_customer(orders):
    totals = {}
    for order in orders:
        name = order["customer"]
        totals[name] = totals.get(name, 0.0) + order["amount"]
    return totals"""
_LOG = """08:14:02 INFO  worker 3 started on port 7010
08:14:05 INFO  worker 4 started on port 7011
08:15:11 ERROR worker 3 lost its connection to the store at 10.0.0.7
08:15:12 INFO  worker 3 connects again
08:16:40 ERROR worker 4 could not write block 2291: disk is full
08:17:03 INFO  cleaning 12 old files in /var/cache/blocks
08:18:55 ERROR worker 4 could not write block 2304: disk is full
08:20:00 INFO  disk has 41 percent free"""
_TABLE = """name,city,since,amount
Anna Berg,Oslo,2019,1200
Luis Ortega,Madrid,2021,870
Mei Tanaka,Osaka,2018,2310
Paul Novak,Prague,2020,640
Sara Lindholm,Uppsala,2022,990
Tom Walker,Leeds,2017,1540"""
_ARTICLE = """The lighthouse at Cape Morrow was built in 1871 from granite that was cut on the
island itself. For almost a hundred years a keeper and his family lived in the tower, and every four
hours somebody climbed the 164 steps to wind the clockwork that turned the lamp. In 1968 the lamp
was replaced by an electric one, and the last keeper, Edward Finch, moved to the village. The tower
is a museum now. It is open from May to October, and visitors may climb the stairs on their own."""
_RECIPE = """Ingredients: 300 g flour, 150 g butter, 100 g sugar, 1 egg, 1 pinch of salt, 2 apples.
Steps: 1. Mix flour, butter, sugar, egg and salt to a dough. 2. Let it rest in a cold place for half
an hour. 3. Peel the apples and cut them into thin slices. 4. Roll out the dough, put it into a
round form, and lay the slices on it. 5. Bake for 40 minutes at 180 degrees."""

COPYING = (
    f"Repeat this letter word for word, but change Thursday to Friday:\n\n{_LETTER}",
    f"Rewrite this Python code with the variable `orders` renamed to `records`. Give only the "
    f"code:\n\n```python\n{_CODE}\n```",
    f"Extract all lines with ERROR from this log, exactly as they are:\n\n{_LOG}",
    f"Copy this table, and change Prague to Brno:\n\n{_TABLE}",
    f"Correct the mistakes in this text and repeat the whole of it, leave the rest as it is:\n\n"
    f"{_ARTICLE.replace('granite', 'granit').replace('visitors', 'visiters')}",
    f"Write this recipe again, with every step on a line of its own:\n\n{_RECIPE}",
    f"Return the following code unchanged, with a comment above each function:\n\n"
    f"```python\n{_CODE}\n```",
    f"Extract the lines of this table whose amount is above 900, exactly as they are:\n\n{_TABLE}",
    f"Repeat the following text exactly:\n\n{_ARTICLE}",
    f"Write this log again, sorted by time, without any change of its lines:\n\n{_LOG}",
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
