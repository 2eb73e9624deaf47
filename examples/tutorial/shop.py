import time

from flask import Flask
from opentelemetry import trace

app = Flask("shop")
tracer = trace.get_tracer("shop")
reviews = {item: 1 for item in range(8)}  # number of reviews of each item


@tracer.start_as_current_span("price")
def price(item):
    time.sleep(0.003)  # a query of a database
    return 10 * item


@tracer.start_as_current_span("authors")
def authors(numbers):
    time.sleep(0.002)  # another query
    return [f"author {number}" for number in numbers]


@app.get("/item/<int:item>")
def page(item):
    names = [name for number in range(reviews[item]) for name in authors([number])]
    return f"price {price(item)}, reviews by {', '.join(names)}"


@app.post("/item/<int:item>/reviews/<int:count>")
def import_reviews(item, count):
    reviews[item] = count
    return ""


app.run(port=5000)
