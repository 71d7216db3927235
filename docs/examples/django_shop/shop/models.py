from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    shipped = models.BooleanField(default=False)
